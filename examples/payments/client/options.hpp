// The command line of payments_client.
#pragma once

#include <string>

#include "exchange.hpp"
#include "retry.hpp"

namespace payments::client {

struct Options {
    RetryRules rules;
    Milliseconds patience{30'000};
    std::string server;
    Request request;
};

// Throws std::invalid_argument on invalid arguments. Prints the usage and exits on --help.
Options parse_options(int argc, char** argv);

}  // namespace payments::client
