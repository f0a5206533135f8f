// The command line.
#pragma once

#include <string>
#include <vector>

namespace idem::bench {

struct Options {
    std::vector<std::string> scenarios;  // none named: all
    std::string json;                    // file for the results; '': none
    int clients = 4;
    int rounds = 3;      // pairs of sweeping on and off, or repetitions
    int seconds = 60;    // that one measurement takes
    int ttl = 30;        // seconds until a record of the steady state expires
    int rows = 1000000;  // of the backlog
    int rate = 200;      // first executions per second beside the backlog
};

// Throws std::invalid_argument, whose text says what was wrong.
Options parse(int argc, char** argv);

}  // namespace idem::bench
