#include "run/options.hpp"

#include <getopt.h>

#include <sstream>
#include <stdexcept>

namespace idem::chaos {
namespace {

const option kOptions[] = {
    {"scenario", required_argument, nullptr, 'c'}, {"seed", required_argument, nullptr, 's'},
    {"seconds", required_argument, nullptr, 't'},  {"sessions", required_argument, nullptr, 'n'},
    {"keys", required_argument, nullptr, 'k'},     {"decided", required_argument, nullptr, 'e'},
    {"faults", required_argument, nullptr, 'f'},   {"keep", required_argument, nullptr, 'o'},
    {"harm", required_argument, nullptr, 'm'},     {"pause", required_argument, nullptr, 'p'},
    {"check", required_argument, nullptr, 'h'},    {"disk", required_argument, nullptr, 'd'},
    {"patroni", required_argument, nullptr, 'P'},  {"folder", required_argument, nullptr, 'F'},
    {"setting", required_argument, nullptr, 'S'},  {"citus", no_argument, nullptr, 'C'},
    {"sabotage", required_argument, nullptr, 'b'}, {nullptr, 0, nullptr, 0},
};

std::uint64_t number(const std::string& text, std::uint64_t least, std::uint64_t most) {
    std::size_t used = 0;
    std::uint64_t value = 0;
    try {
        value = std::stoull(text, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    if (used == 0 || used != text.size() || value < least || value > most)
        throw std::invalid_argument("'" + text + "' is not a number from " + std::to_string(least) +
                                    " to " + std::to_string(most));
    return value;
}

std::vector<std::string> list_of(const std::string& text) {
    std::vector<std::string> items;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');)
        if (item != "none") items.push_back(item);
    return items;
}

bool sabotage(Options& options, const std::string& what) {
    options.effect_outside = what == "effect-outside";
    options.weaker_isolation = what == "weaker-isolation";
    options.trusts_warnings = what == "trusts-warnings";
    options.async_as_sync = what == "async-as-sync";
    options.old_address = what == "old-address";
    return options.effect_outside || options.weaker_isolation || options.trusts_warnings ||
           options.async_as_sync || options.old_address;
}

void apply(Options& options, int letter, const std::string& value) {
    switch (letter) {
        case 'c':
            options.scenario = value;
            return;
        case 's':
            options.seed = number(value, 1, UINT64_MAX);
            return;
        case 't':
            options.seconds = static_cast<int>(number(value, 1, 86400));
            return;
        case 'n':
            options.sessions = static_cast<int>(number(value, 2, 100));
            return;
        case 'k':
            options.keys = static_cast<int>(number(value, 1, 50));
            return;
        case 'e':
            options.decided = static_cast<int>(number(value, 1, 1000));
            return;
        case 'f':
            options.faults = list_of(value);
            return;
        case 'o':
            options.keep = value;
            return;
        case 'h':
            options.check = value;
            return;
        case 'm':
            options.harm = value;
            return;
        case 'p':
            options.pause = static_cast<int>(number(value, 1, 60000));
            return;
        case 'd':
            options.small_disk = value;
            return;
        case 'P':
            options.patroni = value;
            return;
        case 'C':
            options.citus = true;
            return;
        case 'F':
            options.folder = value;
            return;
        case 'S':
            options.settings.push_back(value);
            return;
        case 'b':
            if (sabotage(options, value)) return;
            break;
        default:
            break;
    }
    throw std::invalid_argument("see script/chaos --help");
}

}  // namespace

Options parse(int argc, char** argv) {
    Options options;
    options.faults = {"default"};
    for (int letter; (letter = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;)
        apply(options, letter, optarg == nullptr ? "" : optarg);
    if (optind < argc) throw std::invalid_argument(std::string("unexpected: ") + argv[optind]);
    return options;
}

}  // namespace idem::chaos
