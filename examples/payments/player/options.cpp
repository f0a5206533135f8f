#include "options.hpp"

#include <getopt.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <stdexcept>

namespace payments {
namespace {

constexpr char kUsage[] =
    R"(Plays payment requests over HTTP through concurrent clients against two processes of the
service, kills these, and judges the result.

Usage: payments_demo [option]...
  --database=CONNINFO  a new database (default: the PG* variables)
  --schema=FILE        loads schema.sql from there first (default: it has been loaded)
  --input=FILE         the requests (default: requests.jsonl of the source tree)
  --bin=FOLDER         of payments_service and payments_gateway (default: the player's own)
  --log=FILE           what these two log (default: payments_demo.log)
  --workers=N          client processes, 1 to 64 (default: 8)
  --faults=PERCENT     share of the lines that a client's fault is planned for (default: 8)
  --blow-every=MS      mean time between blows at the service; 0: none (default: 150)
  --seed=N             plans the same faults as the run that printed N (default: random)
  --keep               leaves the service running for curl, until interrupted
  --sabotage=no-idempotency
                       sends every attempt with a key of its own, to see the verdict fail
Exit status: 0 if the verdict holds, 1 if not, 2 on errors, 130 when interrupted.
)";

const option kOptions[] = {
    {"database", required_argument, nullptr, 'd'},
    {"input", required_argument, nullptr, 'i'},
    {"schema", required_argument, nullptr, 'c'},
    {"bin", required_argument, nullptr, 'b'},
    {"log", required_argument, nullptr, 'l'},
    {"workers", required_argument, nullptr, 'w'},
    {"faults", required_argument, nullptr, 'f'},
    {"blow-every", required_argument, nullptr, 'e'},
    {"seed", required_argument, nullptr, 's'},
    {"keep", no_argument, nullptr, 'k'},
    {"sabotage", required_argument, nullptr, 'x'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

std::string own_folder() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

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
        case 'b':
            options.bin = value;
            break;
        case 'l':
            options.log = value;
            break;
        case 'w':
            options.workers = number_between(value, 1, 64);
            break;
        case 'f':
            options.fault_percent = number_between(value, 0, 100);
            break;
        case 'e':
            options.blow_every = number_between(value, 0, 60000);
            break;
        case 's':
            options.seed = any_number(value);
            break;
        case 'k':
            options.keep = true;
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
    options.bin = own_folder();
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
