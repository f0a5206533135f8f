#include "run/run.hpp"

#include <algorithm>
#include <iostream>
#include <random>

#include "check/checker.hpp"
#include "run/database.hpp"
#include "run/load.hpp"
#include "run/report.hpp"
#include "run/scenario.hpp"

namespace idem::chaos {
namespace {

constexpr int kPooledEvery = 3;  // sessions

class Run {
  public:
    explicit Run(const Options& options)
        : options_(options),
          scenario_(scenario_of(options.scenario)),
          server_(Server::from_environment()),
          pooler_(server_, server_.folder() + "/pooler") {
        if (options_.seed == 0) options_.seed = std::random_device{}() | 1u;
        mix_.longest_lease =
            std::clamp<Micros>(options_.seconds * kSecond / 5, kSecond / 2, 10 * kSecond);
        if (options_.keys > 0) mix_.hot_keys = options_.keys;
        if (options_.decided > 0) mix_.decided_every = options_.decided;
        mix_.harm = !options_.faults.empty();
        scenario_.adapt(&mix_);
    }

    Conclusion play() {
        std::cout << "chaos: scenario " << scenario_.name << " (" << scenario_.about << "), seed "
                  << options_.seed << ", " << options_.sessions << " sessions, " << options_.seconds
                  << " s" << std::endl;
        const Micros start = now();
        set_up(server_, mix_.body_limit);
        scenario_.prepare(server_, options_);
        mix_.same_statement = has_same_statement(server_);
        history_.early_rows = writes_early();
        target_.set(server_.connection_string(), pooler_.connection_string());
        Load load(target_, mix_, options_, Habits{}, kPooledEvery);
        load.work([this] { disturb(); });
        add(load.take_calls());
        fired_.insert(load.resets().begin(), load.resets().end());
        last_look(&load);
        read_work(server_, mix_.foreign, &history_);
        return conclude(start);
    }

  private:
    void disturb() {
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
        fired_.insert(stage.fired.begin(), stage.fired.end());
        for (const auto& injector : injectors)
            fired_.insert(injector->fired().begin(), injector->fired().end());
    }

    // Claims that are not written straight to the table have rows that idem_begin writes.
    bool writes_early() const {
        const std::vector<std::string> kinds = faults(Lane::Users);
        return std::find(kinds.begin(), kinds.end(), "triggers") != kinds.end() ||
               server_.value("SHOW idempotency.store") != "auto";
    }

    std::vector<std::string> faults(Lane lane) const {
        const bool usual = options_.faults == std::vector<std::string>{"default"};
        std::vector<std::string> kinds;
        for (const std::string& kind : usual ? scenario_.faults : options_.faults)
            if (ServerFaults::lane_of(kind) == lane) kinds.push_back(kind);
        return kinds;
    }

    void add(std::vector<Call> calls) {
        history_.calls.insert(history_.calls.end(), std::make_move_iterator(calls.begin()),
                              std::make_move_iterator(calls.end()));
    }

    // After every lease.
    void last_look(Load* load) {
        server_.await_ready();
        await_end_of_leases(server_);
        for (const Violation& violation : load->look_at_all(history_.calls))
            at_rest_.push_back(violation);
        add(load->take_calls());
    }

    Conclusion conclude(Micros start) {
        history_.scopes = scopes();
        Judgement judgement = judge(history_);
        for (const Violation& violation : check_at_rest(server_)) at_rest_.push_back(violation);
        judgement.violations.insert(judgement.violations.begin(), at_rest_.begin(), at_rest_.end());
        const Hits hits = count_hits(history_);
        print_report(history_, fired_, hits);
        print_verdict(judgement);
        std::cout << "  time: " << (now() - start) / kSecond << " s" << std::endl;
        return conclude_run(judgement, hits, history_, options_, scenario_.name);
    }

    Options options_;
    const Scenario& scenario_;
    Server server_;
    Pooler pooler_;
    Target target_;
    Mix mix_;
    History history_;
    std::vector<Violation> at_rest_;
    std::map<std::string, int> fired_;
};

}  // namespace

Conclusion run(const Options& options) {
    return Run(options).play();
}

}  // namespace idem::chaos
