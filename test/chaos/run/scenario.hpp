// The kinds of runs. They differ in the mix of work, the faults, and the events meanwhile.
#pragma once

#include "faults/server_faults.hpp"
#include "load/session.hpp"
#include "run/options.hpp"

namespace idem::chaos {

// The objects that a scenario may use while sessions and faults are at work.
struct Stage {
    Server& server;
    Target& target;
    Mix mix;
    Micros end;
    std::uint64_t seed;
    std::vector<Call> calls;  // of the scenario itself
    std::vector<Micros> forgetful_failovers;
    std::map<std::string, int> fired;  // what it did, for the report
};

struct Scenario {
    const char* name;
    const char* about;
    std::vector<std::string> faults;
    void (*adapt)(Mix* mix);
    void (*prepare)(const Server& server, const Options& options);
    void (*play)(Stage* stage);  // until stage->end
};

// Throws std::invalid_argument.
const Scenario& scenario_of(const std::string& name);

}  // namespace idem::chaos
