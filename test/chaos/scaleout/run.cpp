#include "run/run.hpp"

#include "scaleout/cluster_faults.hpp"
#include "scaleout/sharded_run.hpp"

namespace idem::chaos {
namespace {

using Lane = ClusterFaults::Lane;

class ScaleoutRun : public ShardedRun {
  public:
    explicit ScaleoutRun(const Options& options) : ShardedRun(options), citus_(target_) {}

  private:
    std::string title() const override { return "Citus"; }
    std::string name() const override { return "citus"; }
    const Server& server() override { return citus_.coordinator().server; }

    void bring_up() override {
        citus_.set_up();
        distribute();
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
            history_.moves.insert(history_.moves.end(), injector->moves().begin(),
                                  injector->moves().end());
        }
    }

    void come_to_rest() override { citus_.await_rest(); }

    void look_at_rest() override {
        for (const Citus::Worker* node : citus_.members()) expect_rest(node->name, node->server);
    }

    Citus citus_;
};

}  // namespace

Conclusion run_scaleout(const Options& options) {
    return ScaleoutRun(options).play();
}

}  // namespace idem::chaos
