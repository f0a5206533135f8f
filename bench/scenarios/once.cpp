// The consumer of messages, who keeps no response: idem_once before the business statement, against
// a unique key in the business table itself. As one statement each, and as a transaction of three
// round trips each.

#include "contenders/lineup.hpp"
#include "harness/side_by_side.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr char kTheirStatement[] = "ON CONFLICT, one statement";
constexpr char kOurStatement[] = "idem_once, one statement";
constexpr char kTheirTransaction[] = "ON CONFLICT, transaction";
constexpr char kOurTransaction[] = "idem_once, transaction";

const std::vector<Contender>& lineup() {
    static const std::vector<Contender> contenders{
        {kTheirStatement, unique_key_statement, ""},
        {kOurStatement, ours_once_statement, ""},
        {kTheirTransaction, unique_key, ""},
        {kOurTransaction, ours_once_pipelined, ""},
    };
    return contenders;
}

Comparison compare(Connection& admin, const Options& options, bool durable) {
    return side_by_side(lineup(), {durable ? "once, durable" : "once, synchronous_commit off",
                                   options.clients, options.rounds, options.slice, durable,
                                   [&admin](const Contender&) { begin_afresh(admin); }});
}

}  // namespace

Findings once(const Options& options) {
    Connection admin("idem_bench");
    Comparison durable = compare(admin, options, true);
    Comparison async = compare(admin, options, false);
    begin_afresh(admin);
    return {"once",
            beside(durable.table(kTheirStatement), "async", async.table(kTheirStatement)),
            {durable.figure("once", kOurStatement, kTheirStatement, 0.80),
             durable.figure("once", kOurTransaction, kTheirTransaction, 0.80)},
            {{"durable", durable.details()}, {"synchronous_commit_off", async.details()}},
            {}};
}

}  // namespace idem::bench
