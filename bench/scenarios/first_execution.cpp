// New requests, each with the same business work: how much of the throughput of the transaction
// without protection is left, and what others leave of it.

#include "contenders/lineup.hpp"
#include "harness/side_by_side.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

Comparison compare(Connection& admin, const Options& options, bool durable) {
    Course course{durable ? "first_execution, durable" : "first_execution, synchronous_commit off",
                  options.clients,
                  options.rounds,
                  options.slice,
                  durable,
                  [&admin](const Contender&) { begin_afresh(admin); }};
    return side_by_side(first_executions(), course);
}

std::vector<Figure> figures_of(const Comparison& durable) {
    auto figure = [&durable](const char* name, const char* against, double at_least) {
        return durable.figure("first execution", name, against, at_least);
    };
    return {
        figure(kOurs, kBare, 0.70),        figure(kOursPipelined, kBare, 0.85),
        figure(kOurs, kRedis, 1.0),        figure(kOursPipelined, kRedis, 1.15),
        figure(kOurs, kKeysTable, 1.1),    figure(kOursPipelined, kKeysTablePipelined, 1.1),
        figure(kOurs, kThreeCommits, 2.0),
    };
}

Chart chart_of(const Comparison& durable, const Comparison& async) {
    return {"first_execution",
            "First executions per second",
            durable.names(),
            {{"durable commit", durable.throughputs()},
             {"synchronous_commit = off", async.throughputs()}}};
}

}  // namespace

Findings first_execution(const Options& options) {
    Connection admin("idem_bench");
    Comparison durable = compare(admin, options, true);
    Comparison async = compare(admin, options, false);
    begin_afresh(admin);
    return {"first_execution",
            beside(durable.table(kBare), "async", async.table(kBare)),
            figures_of(durable),
            {{"durable", durable.details()}, {"synchronous_commit_off", async.details()}},
            {chart_of(durable, async)}};
}

}  // namespace idem::bench
