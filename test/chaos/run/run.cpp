#include "run/run.hpp"

#include <algorithm>

#include "run/database.hpp"
#include "run/scenario.hpp"
#include "run/trial.hpp"

namespace idem::chaos {
namespace {

class Run : public Trial {
  public:
    explicit Run(const Options& options)
        : Trial(options),
          scenario_(scenario_of(options.scenario)),
          server_(Server::from_environment()),
          pooler_(server_, server_.folder() + "/pooler") {
        if (options_.decided > 0) mix_.decided_every = options_.decided;
        mix_.harm = !options_.faults.empty();
        pooled_every_ = 3;
        scenario_.adapt(&mix_);
    }

  private:
    std::string title() const override {
        return std::string("scenario ") + scenario_.name + " (" + scenario_.about + ")";
    }
    std::string name() const override { return scenario_.name; }
    const Server& server() override { return server_; }

    void bring_up() override {
        set_up(server_, mix_.body_limit);
        scenario_.prepare(server_, options_);
        history_.early_rows = writes_early();
        target_.set(server_.connection_string(), pooler_.connection_string());
    }

    void disturb() override {
        std::vector<std::unique_ptr<ServerFaults>> injectors;
        for (const Lane lane : {Lane::Moments, Lane::Maintenance, Lane::Users})
            injectors.push_back(std::make_unique<ServerFaults>(
                server_, target_, options_.seed + static_cast<std::uint64_t>(lane), faults(lane),
                options_.small_disk));
        Stage stage{server_,       target_, mix_, now() + options_.seconds * kSecond,
                    options_.seed, {},      {},   {}};
        for (auto& injector : injectors) injector->start();
        scenario_.play(&stage);
        for (auto& injector : injectors) injector->stop();
        history_.forgetful_failovers = stage.forgetful_failovers;
        add(std::move(stage.calls));
        add(stage.fired);
        for (const auto& injector : injectors) add(injector->fired());
    }

    void come_to_rest() override { server_.await_ready(); }
    void look_at_rest() override { add(check_at_rest(server_)); }

    // Unless claims are written directly to the table, idem_begin may have written their rows.
    bool writes_early() const {
        const std::vector<std::string> kinds = faults(Lane::Users);
        return std::find(kinds.begin(), kinds.end(), "triggers") != kinds.end() ||
               !has_module(server_) || server_.value("SHOW idempotency.store") != "auto";
    }

    std::vector<std::string> faults(Lane lane) const {
        const bool usual = options_.faults == std::vector<std::string>{"default"};
        std::vector<std::string> kinds;
        for (const std::string& kind : usual ? scenario_.faults : options_.faults)
            if (ServerFaults::lane_of(kind) == lane) kinds.push_back(kind);
        // Functions of the edition without C belong to one role, and so must the tables.
        if (usual && lane == Lane::Users && !has_module(server_)) kinds.clear();
        return kinds;
    }

    const Scenario& scenario_;
    Server server_;
    Pooler pooler_;
};

}  // namespace

Conclusion run(const Options& options) {
    return Run(options).play();
}

}  // namespace idem::chaos
