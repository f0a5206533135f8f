// What the command line asks for.
#pragma once

#include <cstdint>
#include <string>

namespace payments {

struct Options {
    std::string database;  // libpq connection string; empty: the PG* variables decide
    std::string input = DEMO_REQUESTS;
    std::string schema;  // loaded first, unless empty
    int workers = 8;
    int fault_percent = 8;  // share of the lines that a fault is planned for
    std::uint64_t seed = 0;
    bool without_idempotency = false;  // sabotage: does the work and never asks whether it may
};

// Throws std::invalid_argument on a value that makes no sense. Prints the usage and exits on
// --help.
Options parse_options(int argc, char** argv);

}  // namespace payments
