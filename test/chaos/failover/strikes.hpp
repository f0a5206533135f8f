// Harm for a cluster, one after the other: each is waited for until another primary has taken over,
// then undone, and the next comes when the cluster is whole again.
#pragma once

#include "check/rules.hpp"
#include "failover/watch.hpp"
#include "load/random.hpp"

namespace idem::chaos {

// One of them, and what came of it.
struct Strike {
    std::string kind;
    std::string victim;
    std::string successor;  // empty: nobody took over
    Micros from = 0;
    Micros taken_over = 0;
    Micros undone = 0;  // from then on the victim could come back
    Micros whole = 0;
};

class Strikes {
  public:
    // `kinds` as kinds() has them; empty: all.
    Strikes(Cluster& cluster, const Watch& watch, std::uint64_t seed,
            const std::vector<std::string>& kinds);

    // Until this moment; a strike that was begun is seen through.
    void go_on_until(Micros end);

    const std::vector<Strike>& done() const { return done_; }
    // A cluster that did not become whole again, or nobody took over (invariant 17).
    const std::vector<Violation>& failures() const { return failures_; }
    std::map<std::string, int> fired() const;

    struct Kind {
        const char* name;
        const char* about;
        void (*harm)(Cluster& cluster, Node& victim);
        void (*undo)(Cluster& cluster, Node& victim);
        bool of_primary;
        // Its server goes on, and nobody stops it when another takes over.
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
    Random random_;
    std::vector<const Kind*> wanted_;
    std::vector<const Kind*> round_;  // of the wanted ones, those that were not drawn yet
    const Micros begin_;
    std::vector<Strike> done_;
    std::vector<Violation> failures_;
};

}  // namespace idem::chaos
