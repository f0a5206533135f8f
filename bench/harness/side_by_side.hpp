// Contenders in turn, in rounds: first to last, then last to first, and so on. The machine's mood
// changes slower than a round takes, so what counts are the ratios within the rounds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "contenders/contenders.hpp"
#include "harness/load.hpp"
#include "harness/report.hpp"

namespace idem::bench {

struct Course {
    std::string name;  // for whoever watches
    int clients;
    int rounds;
    int slice_millis;  // how long each contender is measured in each round
    bool durable = true;
    // Before each contender's turn, so that all begin alike; and after it.
    std::function<void(const Contender&)> prepare = [](const Contender&) {};
    std::function<void(const Contender&)> finish = [](const Contender&) {};
};

struct Measured {
    std::string name;
    std::vector<Sample> rounds;

    // The medians of the rounds, milliseconds.
    double per_second() const;
    double quantile(double share) const;
};

class Comparison {
  public:
    explicit Comparison(std::vector<Measured> all) : all_(std::move(all)) {}

    const std::vector<Measured>& all() const { return all_; }
    const Measured& of(const std::string& name) const;
    // Throughput of one contender against another's, of each round.
    std::vector<double> ratios(const std::string& name, const std::string& against) const;
    Figure figure(const std::string& what, const std::string& name, const std::string& against,
                  double at_least) const;

    // A row of each contender, with what it reaches of the given one's throughput.
    Table table(const std::string& against) const;
    Json details() const;
    // For a chart.
    std::vector<std::string> names() const;
    std::vector<double> throughputs() const;

  private:
    std::vector<Measured> all_;
};

// Two tables as one: the columns of the right, each under the name given, beside those of the left.
Table beside(Table left, const std::string& name, const Table& right);

Comparison side_by_side(const std::vector<Contender>& contenders, const Course& course);

}  // namespace idem::bench
