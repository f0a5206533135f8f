#include "options.hpp"

#include <getopt.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>

namespace payments {
namespace {

constexpr char kUsage[] =
    R"(Plays payment requests through concurrent connections, kills some, and judges the result.

Usage: payments_demo [option]...
  --database=CONNINFO  a new database (default: the PG* variables)
  --schema=FILE        loads schema.sql from there first (default: it has been loaded)
  --input=FILE         the requests (default: requests.jsonl of the source tree)
  --workers=N          worker processes, 1 to 64 (default: 8)
  --faults=PERCENT     share of the lines that a fault is planned for, 0 to 100 (default: 8)
  --seed=N             plans the same faults as the run that printed N (default: random)
  --sabotage=no-idempotency
                       does the work without idem_begin, to see the verdict fail
Exit status: 0 if the verdict holds, 1 if not, 2 on errors, 130 when interrupted.
)";

const option kOptions[] = {
    {"database", required_argument, nullptr, 'd'},
    {"input", required_argument, nullptr, 'i'},
    {"schema", required_argument, nullptr, 'c'},
    {"workers", required_argument, nullptr, 'w'},
    {"faults", required_argument, nullptr, 'f'},
    {"seed", required_argument, nullptr, 's'},
    {"sabotage", required_argument, nullptr, 'x'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

std::uint64_t any_number(const std::string& text) {
    std::size_t used = 0;
    const auto value = std::stoull(text, &used);
    if (used != text.size() || text[0] == '-') throw std::invalid_argument(text);
    return value;
}

int number_between(const std::string& text, int least, int most) {
    std::size_t used = 0;
    const int value = std::stoi(text, &used);
    if (used != text.size() || value < least || value > most) throw std::invalid_argument(text);
    return value;
}

void apply(Options& options, int option, const std::string& value) {
    switch (option) {
        case 'd':
            options.database = value;
            break;
        case 'i':
            options.input = value;
            break;
        case 'c':
            options.schema = value;
            break;
        case 'w':
            options.workers = number_between(value, 1, 64);
            break;
        case 'f':
            options.fault_percent = number_between(value, 0, 100);
            break;
        case 's':
            options.seed = any_number(value);
            break;
        case 'x':
            if (value != "no-idempotency") throw std::invalid_argument(value);
            options.without_idempotency = true;
            break;
        case 'h':
            std::cout << kUsage;
            std::exit(0);
        default:
            throw std::invalid_argument("see --help");
    }
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    options.seed = std::random_device{}();
    for (int option; (option = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
        try {
            apply(options, option, optarg ? optarg : "");
        } catch (const std::logic_error&) {  // what std::stoi and number_between throw
            throw std::invalid_argument("invalid option value, see --help");
        }
    }
    if (optind != argc) throw std::invalid_argument("unexpected argument, see --help");
    return options;
}

}  // namespace payments
