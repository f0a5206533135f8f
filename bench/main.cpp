// idem_bench: runs scenarios against the server that libpq's environment names, prints a table of
// each and what was reached. Exit status: 0 if every figure is reached, 1 if not, 2 on errors.
// Scenarios, options and a server to measure are script/bench's business to explain and to bring.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "contenders/business.hpp"
#include "harness/connection.hpp"
#include "harness/machine.hpp"
#include "harness/plots.hpp"
#include "harness/server.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

struct Scenario {
    const char* name;
    Findings (*run)(const Options&);
};

constexpr Scenario kScenarios[] = {
    {"first_execution", first_execution},
    {"once", once},
    {"replay", replay},
    {"hot_key", hot_key},
    {"resources", resources},
    {"live_rows", live_rows},
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

std::vector<Findings> run_chosen(const Options& options) {
    std::vector<Findings> all;
    for (const Scenario& scenario : kScenarios) {
        if (!is_chosen(options, scenario.name)) continue;
        all.push_back(scenario.run(options));
        print(all.back());
    }
    return all;
}

std::vector<Figure> figures_of(const std::vector<Findings>& all) {
    std::vector<Figure> figures;
    for (const Findings& findings : all)
        figures.insert(figures.end(), findings.figures.begin(), findings.figures.end());
    return figures;
}

void write_json(const std::string& file, const Json& machine, const std::vector<Findings>& all) {
    Json scenarios = Json::array();
    for (const Findings& findings : all) scenarios.push_back(to_json(findings));
    std::ofstream out(file);
    out << Json{{"machine", machine}, {"scenarios", scenarios}}.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

void draw_all(const std::string& folder, const std::vector<Findings>& all) {
    std::vector<Chart> charts{chart_of(figures_of(all))};
    for (const Findings& findings : all)
        charts.insert(charts.end(), findings.charts.begin(), findings.charts.end());
    draw(folder, charts);
}

// Whether every figure was reached.
bool run(const Options& options) {
    check_names(options.scenarios);
    Connection admin("idem_bench");
    choose_store(admin, options.store);
    Json machine = describe_machine(admin);
    create_tables(admin);
    std::vector<Findings> all = run_chosen(options);
    print_figures(figures_of(all));
    if (!options.json.empty()) write_json(options.json, machine, all);
    if (!options.plots.empty()) draw_all(options.plots, all);
    return all_reached(figures_of(all));
}

}  // namespace
}  // namespace idem::bench

int main(int argc, char** argv) try {
    return idem::bench::run(idem::bench::parse(argc, argv)) ? 0 : 1;
} catch (const std::exception& error) {
    std::cerr << "idem_bench: " << error.what() << '\n';
    return 2;
}
