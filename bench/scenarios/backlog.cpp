// A large number of records has expired at once, and sweeping starts: do callers notice?

#include <algorithm>
#include <stdexcept>

#include "contenders/contenders.hpp"
#include "harness/connection.hpp"
#include "harness/load.hpp"
#include "harness/server.hpp"
#include "harness/sweeper_watch.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

// The foreground's own records do not expire while we look.
constexpr char kForegroundTtl[] = "1 day";
// So that autovacuum comes while it is drained, for which the default of a minute is too long.
constexpr char kNaptimeSeconds[] = "20";
constexpr int kSettleSeconds = 5;
constexpr int kGiveUpSeconds = 900;

struct Phase {
    std::string name;
    std::vector<Histogram> seconds;
};

struct Round {
    std::vector<Phase> phases;
    double before_p99;
    double during_p99;
    double drain_seconds;
    double longest_transaction;

    double ratio() const { return during_p99 / before_p99; }
};

// As after some time in service: statistics and hint bits are there, nothing waits to be written.
void load_backlog(Connection& admin, int rows) {
    empty_records(admin);
    say("backlog: inserting " + std::to_string(rows) + " expired records");
    // Over an hour, until a minute ago.
    insert_records(admin, {"backlog", 1, rows, -61 * 60, -60, Layout::AsTheyArrive});
    admin.query("VACUUM ANALYZE idempotency.record");
    admin.query("CHECKPOINT");
}

Phase run_phase(Load& load, const std::string& name, int seconds) {
    say("backlog: " + name);
    return {name, for_seconds(load, seconds)};
}

std::vector<Histogram> until_drained(Load& load, const SweeperWatch& watch) {
    return every_second(load, [&watch, left = kGiveUpSeconds]() mutable {
        if (--left == 0) throw std::runtime_error("the backlog is not drained after 15 minutes");
        return !watch.drained();
    });
}

Round run_round(Connection& admin, const Options& options) {
    set_cleanup_interval(admin, 0);
    load_backlog(admin, options.rows);
    Load load({options.clients, static_cast<double>(options.rate)},
              ours_without_business(kForegroundTtl));
    (void)for_seconds(load, kSettleSeconds);
    Round round{};
    round.phases.push_back(run_phase(load, "before", options.seconds));
    SweeperWatch watch("backlog", options.rows);
    set_cleanup_interval(admin, 1);
    say("backlog: draining");
    round.phases.push_back({"draining", until_drained(load, watch)});
    round.phases.push_back(run_phase(load, "after", options.seconds));
    round.before_p99 = sum(round.phases[0].seconds).quantile(0.99);
    round.during_p99 = sum(round.phases[1].seconds).quantile(0.99);
    round.drain_seconds = watch.drain_seconds();
    round.longest_transaction = watch.longest_transaction_seconds();
    say("backlog: drained in " + fixed(round.drain_seconds, 1) + " s");
    return round;
}

double worst_second(const Phase& phase) {
    double worst = 0;
    for (const Histogram& second : phase.seconds) worst = std::max(worst, second.quantile(0.99));
    return worst;
}

std::vector<std::string> row_of(const Phase& phase) {
    Histogram all = sum(phase.seconds);
    auto seconds = static_cast<double>(phase.seconds.size());
    return {phase.name,
            fixed(seconds, 0),
            fixed(static_cast<double>(all.count()) / seconds, 0),
            fixed(all.quantile(0.5), 2),
            fixed(all.quantile(0.99), 2),
            fixed(all.quantile(0.999), 2),
            fixed(worst_second(phase), 2)};
}

Table table_of(const std::vector<Round>& rounds) {
    Table table{
        {"phase", "seconds", "calls/s", "p50 ms", "p99 ms", "p99.9 ms", "worst second's p99 ms"}};
    for (const Round& round : rounds)
        for (const Phase& phase : round.phases) table.push_back(row_of(phase));
    return table;
}

Json details_of(const Phase& phase) {
    Json p50 = Json::array();
    Json p99 = Json::array();
    for (const Histogram& second : phase.seconds) {
        p50.push_back(second.quantile(0.5));
        p99.push_back(second.quantile(0.99));
    }
    return {{"phase", phase.name},
            {"calls", sum(phase.seconds).count()},
            {"p50_ms_of_each_second", p50},
            {"p99_ms_of_each_second", p99}};
}

Json details_of(const Round& round) {
    Json phases = Json::array();
    for (const Phase& phase : round.phases) phases.push_back(details_of(phase));
    return {{"drain_seconds", round.drain_seconds},
            {"longest_sweeper_transaction_seconds", round.longest_transaction},
            {"p99_ratio", round.ratio()},
            {"phases", phases}};
}

template <typename Value>
std::vector<double> of_each(const std::vector<Round>& rounds, Value value) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(value(round));
    return values;
}

std::vector<Figure> figures_of(const std::vector<Round>& rounds) {
    auto ratios = of_each(rounds, [](const Round& r) { return r.ratio(); });
    auto longest = of_each(rounds, [](const Round& r) { return r.longest_transaction; });
    return {
        median_figure("p99 of first executions, draining / before", ratios, Bound::AtMost, 2),
        largest_figure("longest transaction of a sweeper", longest, 1, " s"),
    };
}

// Of the phases' p99, a bar for each round.
Chart chart_of(const std::vector<Round>& rounds) {
    Chart chart{"backlog", "p99 of first executions beside a backlog, milliseconds", {}, {}};
    for (const Phase& phase : rounds.at(0).phases) chart.labels.push_back(phase.name);
    for (const Round& round : rounds) {
        Series series{"round " + std::to_string(chart.series.size() + 1), {}};
        for (const Phase& phase : round.phases)
            series.values.push_back(sum(phase.seconds).quantile(0.99));
        chart.series.push_back(series);
    }
    return chart;
}

}  // namespace

Findings backlog(const Options& options) {
    Connection admin("idem_bench");
    set_server(admin, "autovacuum_naptime", kNaptimeSeconds);
    std::vector<Round> rounds;
    Json list = Json::array();
    for (int i = 0; i < options.pairs; i++) {
        rounds.push_back(run_round(admin, options));
        list.push_back(details_of(rounds.back()));
    }
    set_cleanup_interval(admin, 0);
    reset_server(admin, "autovacuum_naptime");
    empty_records(admin);
    Json details{{"clients", options.clients},
                 {"rate", options.rate},
                 {"rows", options.rows},
                 {"rounds", list}};
    return {"backlog", table_of(rounds), figures_of(rounds), details, {chart_of(rounds)}};
}

}  // namespace idem::bench
