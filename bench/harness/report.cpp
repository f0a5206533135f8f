#include "harness/report.hpp"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>

namespace idem::bench {
namespace {

std::size_t width_of_column(const Table& table, std::size_t column) {
    std::size_t width = 0;
    for (const auto& row : table) width = std::max(width, row.at(column).size());
    return width;
}

// First column to the left, numbers to the right.
void print_row(const Table& table, const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); i++)
        std::cout << (i == 0 ? std::left : std::right) << "  "
                  << std::setw(static_cast<int>(width_of_column(table, i))) << row[i];
    std::cout << '\n';
}

void print_table(const Table& table) {
    for (const auto& row : table) print_row(table, row);
    std::cout << '\n';
}

std::string wanted(const Figure& figure) {
    return (figure.bound == Bound::AtLeast ? ">= " : "<= ") + fixed(figure.limit, 2) + figure.unit;
}

std::string range(const std::vector<double>& samples) {
    auto [low, high] = std::minmax_element(samples.begin(), samples.end());
    return fixed(*low, 2) + " to " + fixed(*high, 2);
}

Table table_of(const std::vector<Figure>& figures) {
    Table table{{"figure", "rounds", "measured", "wanted", ""}};
    for (const Figure& f : figures)
        table.push_back({f.name, range(f.samples), fixed(f.value, 2) + f.unit, wanted(f),
                         f.reached() ? "reached" : "NOT REACHED"});
    return table;
}

Json to_json(const Figure& figure) {
    return {{"name", figure.name},
            {"samples", figure.samples},
            {"value", figure.value},
            {"bound", figure.bound == Bound::AtLeast ? "at least" : "at most"},
            {"limit", figure.limit},
            {"unit", figure.unit},
            {"reached", figure.reached()}};
}

}  // namespace

std::string fixed(double value, int decimals) {
    std::ostringstream out;
    out << std::fixed << std::setprecision(decimals) << value;
    return out.str();
}

// Of an even number of values, the mean of the middle two.
double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Figure median_figure(std::string name, std::vector<double> samples, Bound bound, double limit) {
    double value = median(samples);
    return {std::move(name), std::move(samples), value, bound, limit, ""};
}

Figure largest_figure(std::string name, std::vector<double> samples, double at_most,
                      std::string unit) {
    double value = *std::max_element(samples.begin(), samples.end());
    return {std::move(name), std::move(samples), value, Bound::AtMost, at_most, std::move(unit)};
}

void print(const Findings& findings) {
    std::cout << "== " << findings.scenario << "\n\n";
    print_table(findings.table);
    std::cout.flush();
}

void print_figures(const std::vector<Figure>& figures) {
    std::cout << "== what is to be reached\n\n";
    print_table(table_of(figures));
    std::cout.flush();
}

Json to_json(const Findings& findings) {
    Json figures = Json::array();
    for (const Figure& figure : findings.figures) figures.push_back(to_json(figure));
    return {{"scenario", findings.scenario}, {"figures", figures}, {"details", findings.details}};
}

bool all_reached(const std::vector<Figure>& figures) {
    return std::all_of(figures.begin(), figures.end(),
                       [](const Figure& figure) { return figure.reached(); });
}

void say(const std::string& line) {
    std::fprintf(stderr, "        %s\n", line.c_str());
}

}  // namespace idem::bench
