// What the command line asks for.
#pragma once

#include <cstdint>
#include <string>

namespace payments {

struct Options {
    std::string database;  // libpq connection string; empty: the PG* variables decide
    std::string input = DEMO_REQUESTS;
    std::string schema;                     // loaded first, unless empty
    std::string bin;                        // folder of payments_service and payments_gateway
    std::string log = "payments_demo.log";  // what they write on stderr
    int workers = 8;
    int fault_percent = 8;  // share of the lines that a fault is planned for
    int blow_every = 150;   // mean time between blows at the service, in ms; 0: none
    std::uint64_t seed = 0;
    bool without_idempotency = false;  // sabotage: each attempt comes with a key of its own
    bool keep = false;                 // leaves the service running until interrupted
};

// Throws std::invalid_argument on a value that makes no sense. Prints the usage and exits on
// --help.
Options parse_options(int argc, char** argv);

}  // namespace payments
