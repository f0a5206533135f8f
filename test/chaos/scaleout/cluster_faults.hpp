// Faults for a Citus cluster while its nodes are asked: to connections, to servers, and operators'
// changes to shards, nodes and policies.
#pragma once

#include "check/rules.hpp"
#include "faults/injector.hpp"
#include "load/plan.hpp"
#include "scaleout/citus.hpp"

namespace idem::chaos {

class ClusterFaults : public Injector {
  public:
    // Short faults, faults that stop a server, operators' work on shards and nodes, and daily
    // maintenance run side by side.
    enum class Lane { Connections, Servers, Operators, Routine };

    // `kinds` as kinds() has them; those of other lanes are ignored. Throws std::invalid_argument
    // for a kind that does not exist.
    ClusterFaults(Citus& citus, const Target& target, const Mix& mix, std::uint64_t seed, Lane lane,
                  const std::vector<std::string>& kinds);
    ~ClusterFaults() override { stop(); }

    // Policies that differed between nodes when they had to agree (invariant 24).
    const std::vector<Violation>& found() const { return found_; }
    // When operators were at work, also in vain.
    const std::vector<ShardMove>& moves() const { return moves_; }

  private:
    struct Kind {
        const char* name;
        Lane lane;
        int weight;
        bool (ClusterFaults::*fault)();
    };
    static const std::vector<Kind>& kinds();

    bool guarded(const Kind& kind);
    bool tried(const Kind& kind);
    std::string draw() override;
    void heal() override;
    void say(const std::string& what) const;
    void tell_failure(const char* kind, const std::exception& error) const;
    Citus::Worker& any_member();
    bool signal_session(const char* function);

    bool cancel();
    bool terminate();
    bool disconnect();

    bool stop_server(const char* way);
    bool kill();
    bool stop_immediately();
    bool stop_fast();
    void bring_back(Citus::Worker& victim);

    bool move(const char* mode);
    bool move_blocking();
    bool move_logically();
    bool rebalance();
    bool join();
    bool replicate();
    bool drain();
    bool leave(Citus::Worker& worker, const char* mode);
    bool sweep();
    bool change_policy();
    void expect_door(const Citus::Worker& asked, const Citus::Worker& changed, bool closed);

    Citus& citus_;
    const std::vector<std::string> principals_;
    const Micros begin_;
    std::vector<Violation> found_;
    std::vector<ShardMove> moves_;
};

}  // namespace idem::chaos
