#include "options.hpp"

#include <getopt.h>

#include <stdexcept>

namespace idem::bench {
namespace {

const option kOptions[] = {
    {"scenario", required_argument, nullptr, 's'}, {"json", required_argument, nullptr, 'j'},
    {"clients", required_argument, nullptr, 'c'},  {"rounds", required_argument, nullptr, 'r'},
    {"seconds", required_argument, nullptr, 't'},  {"ttl", required_argument, nullptr, 'l'},
    {"rows", required_argument, nullptr, 'n'},     {"rate", required_argument, nullptr, 'a'},
    {"quick", no_argument, nullptr, 'q'},          {nullptr, 0, nullptr, 0},
};

int number(const std::string& text, int most) {
    std::size_t used = 0;
    int value = 0;
    try {
        value = std::stoi(text, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    if (used == 0 || used != text.size() || value < 1 || value > most)
        throw std::invalid_argument("'" + text + "' is not a number from 1 to " +
                                    std::to_string(most));
    return value;
}

// Long enough to see that everything runs, too short to believe the figures.
void make_quick(Options& options) {
    options.rounds = 1;
    options.seconds = 10;
    options.ttl = 5;
    options.rows = 100000;
}

void apply(Options& options, int letter, const std::string& value) {
    switch (letter) {
        case 's':
            options.scenarios.push_back(value);
            return;
        case 'j':
            options.json = value;
            return;
        case 'c':
            options.clients = number(value, 64);
            return;
        case 'r':
            options.rounds = number(value, 100);
            return;
        case 't':
            options.seconds = number(value, 3600);
            return;
        case 'l':
            options.ttl = number(value, 3600);
            return;
        case 'n':
            options.rows = number(value, 100000000);
            return;
        case 'a':
            options.rate = number(value, 100000);
            return;
        case 'q':
            make_quick(options);
            return;
        default:
            throw std::invalid_argument("see script/bench --help");
    }
}

}  // namespace

Options parse(int argc, char** argv) {
    Options options;
    for (int letter; (letter = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;)
        apply(options, letter, optarg == nullptr ? "" : optarg);
    if (optind < argc) throw std::invalid_argument(std::string("unexpected: ") + argv[optind]);
    return options;
}

}  // namespace idem::bench
