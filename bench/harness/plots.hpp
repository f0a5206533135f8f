// Charts as SVG, drawn by gnuplot.
#pragma once

#include <string>
#include <vector>

#include "harness/report.hpp"

namespace idem::bench {

// How much of what is wanted each figure reaches; at 1 is the line.
Chart chart_of(const std::vector<Figure>& figures);

// Writes NAME.gnuplot and NAME.svg into the folder, which is made if it is not there.
void draw(const std::string& folder, const std::vector<Chart>& charts);

}  // namespace idem::bench
