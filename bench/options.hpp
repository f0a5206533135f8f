// The command line.
#pragma once

#include <string>
#include <vector>

namespace idem::bench {

struct Options {
    std::vector<std::string> scenarios;  // none named: all
    std::string json;                    // file for the results; '': none
    std::string plots;                   // folder for the charts; '': none
    std::string store = "auto";
    int clients = 4;
    int rounds = 7;       // of contenders in turn
    int slice = 4000;     // milliseconds that a contender is measured in a round
    int pairs = 3;        // steady_state: rounds with and without sweeping; backlog: repetitions
    int seconds = 45;     // steady_state, backlog: that one phase is measured
    int ttl = 30;         // steady_state: seconds until a record expires
    int rows = 1000000;   // of the backlog
    int rate = 200;       // first executions per second beside the backlog
    int live = 20000000;  // live_rows: the most
};

// Throws std::invalid_argument, whose text says what was wrong.
Options parse(int argc, char** argv);

}  // namespace idem::bench
