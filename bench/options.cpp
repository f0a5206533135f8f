#include "options.hpp"

#include <getopt.h>

#include <stdexcept>

namespace idem::bench {
namespace {

struct NumberOption {
    const char* name;
    int Options::*value;
    int most;
};

constexpr NumberOption kNumbers[] = {
    {"clients", &Options::clients, 64},   {"rounds", &Options::rounds, 100},
    {"slice", &Options::slice, 600000},   {"pairs", &Options::pairs, 100},
    {"seconds", &Options::seconds, 3600}, {"ttl", &Options::ttl, 3600},
    {"rows", &Options::rows, 100000000},  {"rate", &Options::rate, 100000},
    {"live", &Options::live, 1000000000},
};

struct TextOption {
    const char* name;
    std::string Options::*value;
};

constexpr TextOption kTexts[] = {
    {"json", &Options::json},
    {"plots", &Options::plots},
    {"store", &Options::store},
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

// Short, and still several rounds of each.
void make_quick(Options& options) {
    options.rounds = 3;
    options.slice = 1000;
    options.pairs = 2;
    options.seconds = 8;
    options.ttl = 15;
    options.rows = 200000;
    options.live = 1000000;
}

void apply(Options& options, const std::string& name, const std::string& value) {
    if (name == "scenario") return options.scenarios.push_back(value);
    for (const TextOption& option : kTexts)
        if (name == option.name) options.*option.value = value;
    for (const NumberOption& option : kNumbers)
        if (name == option.name) options.*option.value = number(value, option.most);
}

std::vector<option> long_options() {
    std::vector<option> all{{"quick", no_argument, nullptr, 0},
                            {"scenario", required_argument, nullptr, 0}};
    for (const TextOption& text : kTexts) all.push_back({text.name, required_argument, nullptr, 0});
    for (const NumberOption& n : kNumbers) all.push_back({n.name, required_argument, nullptr, 0});
    all.push_back({nullptr, 0, nullptr, 0});
    return all;
}

}  // namespace

Options parse(int argc, char** argv) {
    Options options;
    const std::vector<option> known = long_options();
    int index = 0;
    for (int found; (found = getopt_long(argc, argv, "", known.data(), &index)) != -1;) {
        if (found == '?') throw std::invalid_argument("see script/bench --help");
        if (optarg == nullptr)
            make_quick(options);
        else
            apply(options, known[static_cast<std::size_t>(index)].name, optarg);
    }
    if (optind < argc) throw std::invalid_argument(std::string("unexpected: ") + argv[optind]);
    return options;
}

}  // namespace idem::bench
