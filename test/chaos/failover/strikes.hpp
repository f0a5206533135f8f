// Faults for a cluster, one after the other. After each the run waits until another primary has
// taken over, then undoes the fault. The next comes when the cluster is whole again.
#pragma once

#include <functional>

#include "check/rules.hpp"
#include "failover/watch.hpp"
#include "load/random.hpp"

namespace idem::chaos {

// One fault and its consequences.
struct Strike {
    std::string kind;
    std::string victim;
    std::string successor;  // empty: no server took over
    Micros from = 0;
    Micros taken_over = 0;
    Micros undone = 0;  // from then on the victim could come back
    Micros whole = 0;
};

// One line for each, and with the moments of acknowledgements the longest time without one.
void print_strikes(const std::vector<Strike>& strikes, const std::vector<Micros>& moments);

class Strikes {
  public:
    // `kinds` as kinds() has them; empty: all. The cluster is whole if `also_missing` finds nothing
    // either.
    Strikes(Cluster& cluster, const Watch& watch, std::uint64_t seed,
            const std::vector<std::string>& kinds, std::function<std::string()> also_missing = {});

    // Until this moment; a fault that has begun is completed.
    void go_on_until(Micros end);
    // One fault, from a cluster that is whole to one that is whole again.
    void strike_once();

    const std::vector<Strike>& done() const { return done_; }
    // A cluster did not become whole again, or no server took over (invariant 17).
    const std::vector<Violation>& failures() const { return failures_; }
    std::map<std::string, int> fired() const;

    struct Kind {
        const char* name;
        const char* about;
        void (*harm)(Cluster& cluster, Node& victim);
        void (*undo)(Cluster& cluster, Node& victim);
        bool of_primary;
        // The server continues, and is not stopped when another takes over.
        bool leaves_two_primaries;
    };
    static const std::vector<Kind>& kinds();

  private:
    const Kind& next();
    Node& victim_of(const Kind& kind);
    void strike(const Kind& kind);
    bool await_takeover(Strike* strike, int before);
    void await_whole(Strike* strike);
    void say(const std::string& what) const;

    Cluster& cluster_;
    const Watch& watch_;
    const std::function<std::string()> also_missing_;
    Random random_;
    std::vector<const Kind*> wanted_;
    std::vector<const Kind*> round_;  // of the wanted ones, those that were not drawn yet
    const Micros begin_;
    std::vector<Strike> done_;
    std::vector<Violation> failures_;
};

}  // namespace idem::chaos
