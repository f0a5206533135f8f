#include "harness/plots.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace idem::bench {
namespace {

constexpr char kLook[] = R"(set terminal svg size 900,480 font 'sans-serif,12' background 'white'
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set grid ytics linecolor '#dddddd'
set border 3
set tics nomirror
set xtics rotate by -30 noenhanced
set yrange [0:*]
set key outside top right horizontal noenhanced
set linetype 1 linecolor '#336791'
set linetype 2 linecolor '#d38b28'
set linetype 3 linecolor '#7a9e48'
)";

// A string of gnuplot's: a single quote is doubled.
std::string quoted(const std::string& text) {
    std::string quoted = "'";
    for (char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
    return quoted + "'";
}

void write_data(std::ostream& out, const Chart& chart) {
    out << "$data << END\n";
    for (std::size_t i = 0; i < chart.labels.size(); i++) {
        out << '"' << chart.labels[i] << '"';
        for (const Series& series : chart.series) out << ' ' << fixed(series.values.at(i), 4);
        out << '\n';
    }
    out << "END\n";
}

void write_plot(std::ostream& out, const Chart& chart) {
    const char* separator = "plot ";
    for (std::size_t i = 0; i < chart.series.size(); i++) {
        out << separator << "$data using " << i + 2 << ":xtic(1) title "
            << quoted(chart.series[i].name) << " linetype " << i + 1;
        separator = ", ";
    }
    if (chart.limit)
        out << separator << *chart.limit << " title 'limit' with lines linecolor '#b03030'";
    out << '\n';
}

void write_script(const std::string& file, const Chart& chart) {
    std::ofstream out(file + ".gnuplot");
    out << kLook << "set output " << quoted(file + ".svg") << "\nset title " << quoted(chart.title)
        << " noenhanced\n";
    write_data(out, chart);
    write_plot(out, chart);
    if (!out.flush()) throw std::runtime_error("cannot write " + file + ".gnuplot");
}

// A word of the shell's.
std::string shell_word(const std::string& text) {
    std::string word = "'";
    for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

}  // namespace

Chart chart_of(const std::vector<Figure>& figures) {
    Chart chart{"figures", "What is reached of what is wanted", {}, {{"measured", {}}}, 1};
    for (const Figure& f : figures) {
        chart.labels.push_back(f.name);
        chart.series[0].values.push_back(f.bound == Bound::AtLeast ? f.value / f.limit
                                                                   : f.limit / f.value);
    }
    return chart;
}

void draw(const std::string& folder, const std::vector<Chart>& charts) {
    std::filesystem::create_directories(folder);
    for (const Chart& chart : charts) {
        std::string file = folder + "/" + chart.file;
        write_script(file, chart);
        if (std::system(("gnuplot " + shell_word(file + ".gnuplot")).c_str()) != 0)
            throw std::runtime_error("gnuplot cannot draw " + file + ".gnuplot");
    }
}

}  // namespace idem::bench
