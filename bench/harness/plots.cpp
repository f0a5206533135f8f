#include "harness/plots.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace idem::bench {
namespace {

// Bars lie, so that names of any length can be read.
constexpr char kLook[] = R"(set style fill solid 0.9 noborder
set grid xtics linecolor '#dddddd'
set border 3
set tics nomirror
set ytics noenhanced
set key outside bottom center horizontal noenhanced
set linetype 1 linecolor '#336791'
set linetype 2 linecolor '#d38b28'
set linetype 3 linecolor '#7a9e48'
)";
// More than that would make the other bars too short to be compared.
constexpr double kMostShare = 3;
constexpr int kPixelsPerBar = 20;
constexpr int kPixelsAround = 110;

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

// A bar and its value. The bars of a label share the height of 0.8.
void write_series(std::ostream& out, const Chart& chart, std::size_t index) {
    double height = 0.8 / static_cast<double>(chart.series.size());
    std::string column = std::to_string(index + 2);
    std::string middle =
        "($0 - 0.4 + " + fixed(height * (static_cast<double>(index) + 0.5), 4) + ")";
    std::string half = fixed(height / 2, 4);
    out << "$data using " << column << ":" << middle << ":(0):" << column << ":(" << middle << " - "
        << half << "):(" << middle << " + " << half << "):ytic(1) with boxxyerror linetype "
        << index + 1 << " title " << quoted(chart.series[index].name) << ", $data using " << column
        << ":" << middle << ":(sprintf(' %.4g', $" << column << ")) with labels left notitle";
}

void write_plot(std::ostream& out, const Chart& chart) {
    if (chart.limit)
        out << "set arrow from " << *chart.limit << ",graph 0 to " << *chart.limit
            << ",graph 1 nohead front linewidth 2 linecolor '#b03030'\n";
    for (std::size_t i = 0; i < chart.series.size(); i++) {
        out << (i == 0 ? "plot " : ", ");
        write_series(out, chart, i);
    }
    out << '\n';
}

void write_frame(std::ostream& out, const Chart& chart) {
    std::size_t bars = chart.labels.size() * chart.series.size();
    double longest = 0;
    for (const Series& series : chart.series)
        longest = std::max(longest, *std::max_element(series.values.begin(), series.values.end()));
    out << "set terminal svg size 960," << kPixelsAround + kPixelsPerBar * static_cast<int>(bars)
        << " font 'sans-serif,12' background 'white'\n"
        << "set xrange [0:" << longest * 1.1 << "]\n"
        << "set yrange [" << fixed(static_cast<double>(chart.labels.size()) - 0.5, 1) << ":-0.5]\n"
        << "set title " << quoted(chart.title) << " noenhanced\n";
}

void write_script(const std::string& file, const Chart& chart) {
    std::ofstream out(file + ".gnuplot");
    out << kLook;
    write_frame(out, chart);
    out << "set output " << quoted(file + ".svg") << '\n';
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
    Chart chart{"figures", "Share of what is wanted, cut off at 3", {}, {{"measured", {}}}, 1};
    for (const Figure& f : figures) {
        double share = f.bound == Bound::AtLeast ? f.value / f.limit : f.limit / f.value;
        chart.labels.push_back(f.name);
        chart.series[0].values.push_back(std::min(share, kMostShare));
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
