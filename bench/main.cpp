// idem_bench: runs scenarios against the server that libpq's environment names, prints a table of
// each and what was reached. Exit status: 0 if every figure is reached, 1 if not, 2 on errors.
// Scenarios, options and a server to measure are script/bench's business to explain and to bring.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "connection.hpp"
#include "machine.hpp"
#include "scenario.hpp"

namespace idem::bench {
namespace {

struct Scenario {
    const char* name;
    Findings (*run)(const Options&);
};

constexpr Scenario kScenarios[] = {
    {"steady_state", steady_state},
    {"backlog", backlog},
};

bool is_known(const std::string& name) {
    return std::any_of(std::begin(kScenarios), std::end(kScenarios),
                       [&name](const Scenario& scenario) { return scenario.name == name; });
}

void check_names(const std::vector<std::string>& names) {
    for (const std::string& name : names)
        if (!is_known(name)) throw std::invalid_argument("no scenario '" + name + "'");
}

bool is_chosen(const Options& options, const std::string& name) {
    const auto& names = options.scenarios;
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

void write_json(const std::string& file, const Json& results) {
    std::ofstream out(file);
    out << results.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

// Whether every figure was reached.
bool run(const Options& options) {
    check_names(options.scenarios);
    Connection admin("idem_bench");
    Json results{{"machine", describe_machine(admin)}, {"scenarios", Json::array()}};
    bool reached = true;
    for (const Scenario& scenario : kScenarios) {
        if (!is_chosen(options, scenario.name)) continue;
        Findings findings = scenario.run(options);
        print(findings);
        results["scenarios"].push_back(to_json(findings));
        reached = reached && all_reached(findings);
    }
    if (!options.json.empty()) write_json(options.json, results);
    return reached;
}

}  // namespace
}  // namespace idem::bench

int main(int argc, char** argv) try {
    return idem::bench::run(idem::bench::parse(argc, argv)) ? 0 : 1;
} catch (const std::exception& error) {
    std::cerr << "idem_bench: " << error.what() << '\n';
    return 2;
}
