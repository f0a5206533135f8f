// Requests that were answered before: ten thousand completed keys, picked at random.

#include "contenders/business.hpp"
#include "contenders/lineup.hpp"
#include "harness/server.hpp"
#include "harness/side_by_side.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr int kKeys = 10000;
constexpr int kDay = 24 * 60 * 60;
constexpr char kSelect[] = "primary-key SELECT";
constexpr char kRedisPipelined[] = "Redis, pipelined";

std::vector<std::string> keys(Connection& admin) {
    std::vector<std::string> keys;
    for (const Row& row : admin.query("SELECT key FROM idempotency.record")) keys.push_back(row[0]);
    return keys;
}

// The same answers for all, and the records once more in a plain table of the same shape.
std::vector<std::string> store_answers(Connection& admin) {
    begin_afresh(admin);
    insert_records(admin, {"bench", 1, kKeys, kDay, 2 * kDay, Layout::ByKey});
    admin.query(
        "CREATE TABLE bench.record_copy (LIKE idempotency.record INCLUDING ALL);"
        "INSERT INTO bench.record_copy SELECT * FROM idempotency.record");
    // Not in one string: VACUUM is not for transactions.
    admin.query("VACUUM ANALYZE idempotency.record");
    admin.query("VACUUM ANALYZE bench.record_copy");
    std::vector<std::string> all = keys(admin);
    Redis redis;
    for (const std::string& key : all) redis.set(key, response_body(), kDay * 1000);
    return all;
}

}  // namespace

Findings replay(const Options& options) {
    Connection admin("idem_bench");
    std::vector<std::string> all = store_answers(admin);
    Comparison comparison =
        side_by_side({{kSelect, select_by_key(all), ""},
                      {kRedis, redis_replay(all), ""},
                      {kRedisPipelined, redis_replay_pipelined(all), ""},
                      {kOurs, ours_replay(all), ""}},
                     {"replay", options.clients, options.rounds, options.slice});
    admin.query("DROP TABLE bench.record_copy");
    begin_afresh(admin);
    Chart chart{"replay",
                "Replays per second",
                comparison.names(),
                {{"replays", comparison.throughputs()}}};
    return {"replay",
            comparison.table(kSelect),
            {comparison.figure("replay", kOurs, kSelect, 0.95),
             comparison.figure("replay", kOurs, kRedis, 2.0)},
            comparison.details(),
            {chart}};
}

}  // namespace idem::bench
