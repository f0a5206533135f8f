#include "harness/side_by_side.hpp"

#include <algorithm>
#include <stdexcept>

namespace idem::bench {
namespace {

// Connecting, preparing, and filling the caches of new sessions.
constexpr std::chrono::milliseconds kWarmUp(400);

// The clients are gone when it returns.
Sample measure_alone(const Contender& contender, const Course& course) {
    Load load({course.clients}, contender.work, {contender.database, course.durable});
    return measure(load, kWarmUp, std::chrono::milliseconds(course.slice_millis));
}

Sample take_turn(const Contender& contender, const Course& course) {
    course.prepare(contender);
    Sample sample = measure_alone(contender, course);
    course.finish(contender);
    return sample;
}

std::vector<std::size_t> order_of(int round, std::size_t count) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < count; i++) order.push_back(round % 2 == 0 ? i : count - 1 - i);
    return order;
}

template <typename Value>
double median_of(const std::vector<Sample>& rounds, Value value) {
    std::vector<double> values;
    for (const Sample& sample : rounds) values.push_back(value(sample));
    return median(values);
}

}  // namespace

double Measured::per_second() const {
    return median_of(rounds, [](const Sample& sample) { return sample.per_second(); });
}

double Measured::quantile(double share) const {
    return median_of(rounds, [share](const Sample& s) { return s.calls.quantile(share); });
}

const Measured& Comparison::of(const std::string& name) const {
    for (const Measured& measured : all_)
        if (measured.name == name) return measured;
    throw std::logic_error("no contender " + name);
}

std::vector<double> Comparison::ratios(const std::string& name, const std::string& against) const {
    const std::vector<Sample>& ours = of(name).rounds;
    const std::vector<Sample>& theirs = of(against).rounds;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); i++)
        ratios.push_back(ours[i].per_second() / theirs[i].per_second());
    return ratios;
}

Figure Comparison::figure(const std::string& what, const std::string& name,
                          const std::string& against, double at_least) const {
    return median_figure(what + ": " + name + " / " + against, ratios(name, against),
                         Bound::AtLeast, at_least);
}

Table Comparison::table(const std::string& against) const {
    Table table{{"contender", "per second", "p50 ms", "p99 ms", "of " + against}};
    for (const Measured& m : all_)
        table.push_back({m.name, fixed(m.per_second(), 0), fixed(m.quantile(0.5), 3),
                         fixed(m.quantile(0.99), 3), fixed(median(ratios(m.name, against)), 2)});
    return table;
}

Json Comparison::details() const {
    Json list = Json::array();
    for (const Measured& m : all_) {
        Json rounds = Json::array();
        for (const Sample& sample : m.rounds)
            rounds.push_back({{"per_second", sample.per_second()},
                              {"p50_ms", sample.calls.quantile(0.5)},
                              {"p99_ms", sample.calls.quantile(0.99)}});
        list.push_back({{"contender", m.name},
                        {"per_second", m.per_second()},
                        {"p50_ms", m.quantile(0.5)},
                        {"p99_ms", m.quantile(0.99)},
                        {"rounds", rounds}});
    }
    return list;
}

std::vector<std::string> Comparison::names() const {
    std::vector<std::string> names;
    for (const Measured& measured : all_) names.push_back(measured.name);
    return names;
}

std::vector<double> Comparison::throughputs() const {
    std::vector<double> values;
    for (const Measured& measured : all_) values.push_back(measured.per_second());
    return values;
}

Table beside(Table left, const std::string& name, const Table& right) {
    for (std::size_t i = 0; i < left.size(); i++)
        for (std::size_t j = 1; j < right[i].size(); j++)
            left[i].push_back((i == 0 ? name + " " : "") + right[i][j]);
    return left;
}

Comparison side_by_side(const std::vector<Contender>& contenders, const Course& course) {
    std::vector<Measured> all;
    for (const Contender& contender : contenders) all.push_back({contender.name, {}});
    for (int round = 0; round < course.rounds; round++) {
        say(course.name + ": round " + std::to_string(round + 1) + " of " +
            std::to_string(course.rounds));
        for (std::size_t i : order_of(round, contenders.size()))
            all[i].rounds.push_back(take_turn(contenders[i], course));
    }
    return Comparison(all);
}

}  // namespace idem::bench
