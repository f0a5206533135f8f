#include "run/run.hpp"

#include "run/database.hpp"
#include "run/tables.hpp"
#include "run/trial.hpp"
#include "scaleout/cluster_faults.hpp"

namespace idem::chaos {
namespace {

using Lane = ClusterFaults::Lane;

class ScaleoutRun : public Trial {
  public:
    explicit ScaleoutRun(const Options& options) : Trial(options), citus_(target_) {
        mix_.harm = !options.faults.empty();
        mix_.distributed = true;
        mix_.tenants = 8;
        // Excludes what Citus does not promise or support: users' PREPARE TRANSACTION, and
        // SERIALIZABLE across nodes and moves.
        mix_.prepare = false;
        mix_.sums = false;
        mix_.hold = false;
        mix_.decided_every = 0;
        habits_.any_node = true;
    }

  private:
    std::string title() const override { return "Citus"; }
    std::string name() const override { return "citus"; }
    const Server& server() override { return citus_.coordinator().server; }

    void bring_up() override {
        citus_.set_up();
        set_up(server(), mix_.body_limit);
        for (const std::string& sql : distributed_work()) Citus::ask(server(), sql);
        // A lease counts from PREPARE, and others see the row when all nodes have committed.
        history_.early_rows = true;
    }

    void disturb() override {
        std::vector<std::unique_ptr<ClusterFaults>> injectors;
        for (const Lane lane : {Lane::Connections, Lane::Servers, Lane::Operators, Lane::Routine})
            injectors.push_back(std::make_unique<ClusterFaults>(
                citus_, target_, mix_, options_.seed, lane, options_.faults));
        for (auto& injector : injectors) injector->start();
        rest(options_.seconds * kSecond);
        for (auto& injector : injectors) injector->stop();
        for (const auto& injector : injectors) {
            add(injector->fired());
            add(injector->found());
        }
    }

    void come_to_rest() override { citus_.await_rest(); }

    void look_at_rest() override {
        for (const Citus::Worker* node : citus_.members())
            for (const Violation& violation : check_node(node->server))
                at_rest_.push_back({violation.invariant, node->name + ": " + violation.what});
    }

    void print_more() const override { print_nodes(history_); }

    Citus citus_;
};

}  // namespace

Conclusion run_scaleout(const Options& options) {
    return ScaleoutRun(options).play();
}

}  // namespace idem::chaos
