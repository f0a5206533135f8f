// The options of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace idem::chaos {

struct Options {
    std::string scenario = "mixed";
    std::uint64_t seed = 0;  // 0: drawn, and printed
    int seconds = 30;
    int sessions = 24;
    int keys = 0;     // 0: the scenario's
    int decided = 0;  // every so many turns keys are decided about; 0: the scenario's
    std::vector<std::string> faults;
    std::string keep;   // folder for histories that were found wrong
    std::string check;  // a history to judge, instead of running anything
    std::string harm;   // a service to harm, instead of running anything
    int pause = 150;    // ... every so many milliseconds on average
    std::string small_disk;
    std::string patroni;                // mode of a cluster, instead of a scenario on one server
    bool citus = false;                 // ... or a Citus cluster
    std::string folder;                 // ... and where it is to be
    std::vector<std::string> settings;  // ... and of its servers
    bool effect_outside = false;        // see Sabotage
    bool weaker_isolation = false;
    bool trusts_warnings = false;  // see Habits
    bool async_as_sync = false;    // an asynchronous cluster is judged as a synchronous one
    bool old_address = false;      // Citus is not told of new primaries
};

// Throws std::invalid_argument.
Options parse(int argc, char** argv);

}  // namespace idem::chaos
