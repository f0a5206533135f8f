// As many records expire as arrive. Rounds with sweeping on and off alternate (on off off on ...),
// each from an empty table; what counts is the ratio of neighbours, since the machine's mood
// changes slower than that. With sweeping off the table grows for the whole round: it is the cost
// of doing nothing that sweeping is compared with. Autovacuum looks around six times in the life of
// a record: everything is in a hurry here, for records live for seconds instead of a day.

#include <algorithm>

#include "contenders/contenders.hpp"
#include "harness/connection.hpp"
#include "harness/load.hpp"
#include "harness/server.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr int kIntervalSeconds = 1;
// After the first records expire, until sweeper and autovacuum have found their rhythm.
int settle_seconds(int ttl) {
    return std::max(ttl / 3, 5);
}

struct Round {
    bool sweeping;
    double per_second;
    double p99_millis;
    double swept_per_second;
    double table_bytes;
    double live_bytes;     // at its end
    double most_over_end;  // of live records: a table keeps its largest size when the rate falls
    double index_growth;   // largest of the second half of the round against that of the first

    double most_live_bytes() const { return live_bytes * most_over_end; }
    double bloat() const { return table_bytes / most_live_bytes(); }
};

double growth(const std::vector<double>& sizes) {
    auto half = sizes.begin() + static_cast<std::ptrdiff_t>((sizes.size() + 1) / 2);
    if (half == sizes.end()) return 1;
    return *std::max_element(half, sizes.end()) / *std::max_element(sizes.begin(), half);
}

// The load is at work already, and what it did in the seconds since then is known.
Round measure(Connection& admin, Load& load, std::vector<Histogram> since_empty,
              const Options& options) {
    Round round{};
    std::vector<double> index_sizes;
    std::int64_t swept_before = swept(admin, "bench");
    auto go_on = [&, left = options.seconds]() mutable {
        Sizes sizes = record_sizes(admin);
        round.table_bytes = sizes.table;
        index_sizes.push_back(sizes.indexes);
        return --left > 0;
    };
    std::vector<Histogram> measured = every_second(load, go_on);
    round.swept_per_second =
        static_cast<double>(swept(admin, "bench") - swept_before) / options.seconds;
    round.live_bytes = live_copy_size(admin);
    since_empty.insert(since_empty.end(), measured.begin(), measured.end());
    round.most_over_end = busiest_over_last(since_empty, options.ttl);
    Histogram calls = sum(measured);
    round.per_second = static_cast<double>(calls.count()) / options.seconds;
    round.p99_millis = calls.quantile(0.99);
    round.index_growth = growth(index_sizes);
    return round;
}

Round run_round(Connection& admin, const Options& options, bool sweeping) {
    set_cleanup_interval(admin, 0);
    empty_records(admin);
    set_cleanup_interval(admin, sweeping ? kIntervalSeconds : 0);
    Load load({options.clients, 0}, ours_without_business(std::to_string(options.ttl) + " s"));
    auto settled = for_seconds(load, options.ttl + settle_seconds(options.ttl));
    Round round = measure(admin, load, settled, options);
    round.sweeping = sweeping;
    say("sweeping " + std::string(sweeping ? "on:  " : "off: ") + fixed(round.per_second, 0) +
        " first executions per second");
    return round;
}

std::vector<Round> run_rounds(Connection& admin, const Options& options) {
    std::vector<Round> rounds;
    for (int pair = 0; pair < options.pairs; pair++) {
        bool on_first = pair % 2 == 0;
        say("steady_state: pair " + std::to_string(pair + 1) + " of " +
            std::to_string(options.pairs));
        rounds.push_back(run_round(admin, options, on_first));
        rounds.push_back(run_round(admin, options, !on_first));
    }
    return rounds;
}

std::vector<double> ratios_of_pairs(const std::vector<Round>& rounds) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i + 1 < rounds.size(); i += 2) {
        const Round& on = rounds[i].sweeping ? rounds[i] : rounds[i + 1];
        const Round& off = rounds[i].sweeping ? rounds[i + 1] : rounds[i];
        ratios.push_back(on.per_second / off.per_second);
    }
    return ratios;
}

template <typename Value>
std::vector<double> while_sweeping(const std::vector<Round>& rounds, Value value) {
    std::vector<double> values;
    for (const Round& round : rounds)
        if (round.sweeping) values.push_back(value(round));
    return values;
}

std::string mib(double bytes) {
    return fixed(bytes / (1024 * 1024), 1);
}

Table table_of(const std::vector<Round>& rounds) {
    Table table{{"sweeping", "executed/s", "p99 ms", "swept/s", "table MiB", "live MiB",
                 "most live MiB", "table/most live", "index growth"}};
    for (const Round& r : rounds)
        table.push_back({r.sweeping ? "on" : "off", fixed(r.per_second, 0), fixed(r.p99_millis, 2),
                         fixed(r.swept_per_second, 0), mib(r.table_bytes), mib(r.live_bytes),
                         mib(r.most_live_bytes()), fixed(r.bloat(), 2), fixed(r.index_growth, 2)});
    return table;
}

Json details_of(const std::vector<Round>& rounds, const Options& options) {
    Json list = Json::array();
    for (const Round& r : rounds)
        list.push_back({{"sweeping", r.sweeping},
                        {"executed_per_second", r.per_second},
                        {"p99_ms", r.p99_millis},
                        {"swept_per_second", r.swept_per_second},
                        {"table_bytes", r.table_bytes},
                        {"live_bytes", r.live_bytes},
                        {"most_live_bytes", r.most_live_bytes()},
                        {"index_growth", r.index_growth}});
    return {{"clients", options.clients},
            {"ttl_seconds", options.ttl},
            {"seconds", options.seconds},
            {"ratio_of_each_pair", ratios_of_pairs(rounds)},
            {"rounds", list}};
}

std::vector<Figure> figures_of(const std::vector<Round>& rounds) {
    auto bloat = while_sweeping(rounds, [](const Round& r) { return r.bloat(); });
    auto growths = while_sweeping(rounds, [](const Round& r) { return r.index_growth; });
    return {
        median_figure("throughput, sweeping on / off", ratios_of_pairs(rounds), Bound::AtLeast,
                      0.95),
        median_figure("table / its live rows at their most", bloat, Bound::AtMost, 1.3),
        median_figure("indexes, second half / first half", growths, Bound::AtMost, 1.05),
    };
}

}  // namespace

Findings steady_state(const Options& options) {
    Connection admin("idem_bench");
    set_server(admin, "autovacuum_naptime", std::to_string(std::max(options.ttl / 6, 1)));
    std::vector<Round> rounds = run_rounds(admin, options);
    reset_server(admin, "autovacuum_naptime");
    set_cleanup_interval(admin, 0);
    empty_records(admin);
    return {"steady_state", table_of(rounds), figures_of(rounds), details_of(rounds, options), {}};
}

}  // namespace idem::bench
