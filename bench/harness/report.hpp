// What a scenario found: figures that are reached or not, and everything they were computed from.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace idem::bench {

using Json = nlohmann::ordered_json;

enum class Bound { AtLeast, AtMost };

struct Figure {
    std::string name;
    std::vector<double> samples;  // of each round; how far they lie apart tells how noisy it was
    double value;                 // what they come to
    Bound bound;
    double limit;
    std::string unit;  // '' for a ratio

    bool reached() const { return bound == Bound::AtLeast ? value >= limit : value <= limit; }
};

// Cells of text; the first row is the header.
using Table = std::vector<std::vector<std::string>>;

struct Series {
    std::string name;
    std::vector<double> values;  // one for each label of the chart
};

// Bars of one or several series, with a line where a limit lies.
struct Chart {
    std::string file;  // without folder and suffix
    std::string title;
    std::vector<std::string> labels;
    std::vector<Series> series;
    std::optional<double> limit = std::nullopt;
};

struct Findings {
    std::string scenario;
    Table table;
    std::vector<Figure> figures;
    Json details;
    std::vector<Chart> charts;
};

std::string fixed(double value, int decimals);
double median(std::vector<double> values);

// The figure that a median is, or the largest sample.
Figure median_figure(std::string name, std::vector<double> samples, Bound bound, double limit);
Figure largest_figure(std::string name, std::vector<double> samples, double at_most,
                      std::string unit);

void print(const Findings& findings);
// Every figure of a run, and which are reached.
void print_figures(const std::vector<Figure>& figures);
Json to_json(const Findings& findings);
bool all_reached(const std::vector<Figure>& figures);

// Progress, on stderr.
void say(const std::string& line);

}  // namespace idem::bench
