#include "server.hpp"

#include <chrono>
#include <thread>

namespace idem::bench {
namespace {

void wait_until(Connection& admin, const std::string& condition) {
    while (admin.text("SELECT " + condition) != "t")
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

void set_cleanup_interval(Connection& admin, int seconds) {
    std::string value = std::to_string(seconds) + "s";
    admin.query("ALTER SYSTEM SET idempotency.cleanup_interval = '" + value + "'");
    admin.query("SELECT pg_reload_conf()");
    wait_until(admin,
               "current_setting('idempotency.cleanup_interval')::interval = '" + value + "'");
    if (seconds == 0)
        wait_until(admin,
                   "NOT EXISTS (SELECT FROM pg_stat_activity"
                   " WHERE backend_type = 'idempotency sweeper')");
}

void empty_records(Connection& admin) {
    admin.query("TRUNCATE idempotency.record");
    admin.query("CHECKPOINT");
}

Sizes record_sizes(Connection& admin) {
    Row row = admin
                  .query(
                      "SELECT pg_relation_size('idempotency.record'),"
                      " pg_indexes_size('idempotency.record')")
                  .at(0);
    return {std::stod(row.at(0)), std::stod(row.at(1))};
}

double live_copy_size(Connection& admin) {
    std::string fill = admin.text(
        "SELECT coalesce((SELECT option_value FROM pg_options_to_table(reloptions)"
        " WHERE option_name = 'fillfactor'), '100')"
        " FROM pg_class WHERE oid = 'idempotency.record'::regclass");
    admin.query("CREATE TEMP TABLE live WITH (fillfactor = " + fill +
                ") AS SELECT * FROM idempotency.record WHERE retained_until > clock_timestamp()");
    double size = admin.number("SELECT pg_relation_size('live')");
    admin.query("DROP TABLE live");
    return size;
}

std::int64_t swept(Connection& admin, const std::string& scope) {
    return std::stoll(
        admin.text("SELECT coalesce(sum(swept), 0) FROM idempotency.stats"
                   " WHERE NOT total AND scope = '" +
                   scope + "'"));
}

}  // namespace idem::bench
