// What one request of each contender costs beside time: WAL, buffers, commits and round trips. One
// client, a fixed number of requests; the server's own counters before and after.

#include <chrono>
#include <thread>

#include "contenders/lineup.hpp"
#include "harness/client.hpp"
#include "harness/server.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr int kRequests = 3000;
constexpr char kClient[] = "idem_bench measured";

struct Counters {
    double wal_bytes;
    double wal_records;
    double buffers;
    double commits;
};

struct Cost {
    std::string name;
    Counters server;  // per request
    double round_trips;
};

// A backend hands in its counters when it ends.
void wait_for_the_end(Connection& admin) {
    while (admin.number("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" +
                        std::string(kClient) + "'") > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Counters counters(Connection& admin) {
    Row row = admin
                  .query(
                      "SELECT pg_current_wal_insert_lsn() - '0/0', wal_records,"
                      " blks_hit + blks_read, xact_commit"
                      " FROM pg_stat_wal, pg_stat_database WHERE datname = current_database()")
                  .at(0);
    return {std::stod(row[0]), std::stod(row[1]), std::stod(row[2]), std::stod(row[3])};
}

Counters per_request(const Counters& before, const Counters& after) {
    return {(after.wal_bytes - before.wal_bytes) / kRequests,
            (after.wal_records - before.wal_records) / kRequests,
            (after.buffers - before.buffers) / kRequests,
            (after.commits - before.commits) / kRequests};
}

// Returns the round trips.
std::uint64_t make_requests(const Contender& contender) {
    Client client(kClient);
    Work work = contender.work(client);
    for (int i = 0; i < kRequests; i++) work();
    return client.round_trips();
}

Cost measure_cost(Connection& admin, const Contender& contender) {
    say("resources: " + contender.name);
    begin_afresh(admin);
    Counters before = counters(admin);
    auto round_trips = static_cast<double>(make_requests(contender));
    wait_for_the_end(admin);
    return {contender.name, per_request(before, counters(admin)), round_trips / kRequests};
}

Table table_of(const std::vector<Cost>& costs) {
    Table table{{"contender", "WAL bytes", "WAL records", "buffers", "commits", "round trips"}};
    for (const Cost& cost : costs)
        table.push_back({cost.name, fixed(cost.server.wal_bytes, 0),
                         fixed(cost.server.wal_records, 1), fixed(cost.server.buffers, 1),
                         fixed(cost.server.commits, 1), fixed(cost.round_trips, 1)});
    return table;
}

Json details_of(const std::vector<Cost>& costs) {
    Json list = Json::array();
    for (const Cost& cost : costs)
        list.push_back({{"contender", cost.name},
                        {"wal_bytes", cost.server.wal_bytes},
                        {"wal_records", cost.server.wal_records},
                        {"buffers", cost.server.buffers},
                        {"commits", cost.server.commits},
                        {"round_trips", cost.round_trips}});
    return list;
}

Chart chart_of(const std::vector<Cost>& costs) {
    Chart chart{"wal", "WAL bytes per request", {}, {{"WAL bytes", {}}}};
    for (const Cost& cost : costs) {
        chart.labels.push_back(cost.name);
        chart.series[0].values.push_back(cost.server.wal_bytes);
    }
    return chart;
}

}  // namespace

Findings resources(const Options&) {
    Connection admin("idem_bench");
    std::vector<Cost> costs;
    set_server(admin, "autovacuum", "off");  // its work is counted in the same places
    for (const Contender& contender : first_executions())
        costs.push_back(measure_cost(admin, contender));
    reset_server(admin, "autovacuum");
    begin_afresh(admin);
    return {"resources", table_of(costs), {}, details_of(costs), {chart_of(costs)}};
}

}  // namespace idem::bench
