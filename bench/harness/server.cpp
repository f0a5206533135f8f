#include "harness/server.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "contenders/business.hpp"

namespace idem::bench {
namespace {

void wait_until(Connection& admin, const std::string& condition) {
    while (admin.text("SELECT " + condition) != "t")
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

void set_server(Connection& admin, const std::string& setting, const std::string& value) {
    admin.query("ALTER SYSTEM SET " + setting + " = '" + value + "'");
    admin.query("SELECT pg_reload_conf()");
    wait_until(admin, "(SELECT setting FROM pg_settings WHERE name = '" + setting + "') = '" +
                          value + "'");
}

void reset_server(Connection& admin, const std::string& setting) {
    admin.query("ALTER SYSTEM RESET " + setting);
    admin.query("SELECT pg_reload_conf()");
}

void choose_store(Connection& admin, const std::string& store) {
    bool has_choice =
        admin.number("SELECT count(*) FROM pg_settings WHERE name = 'idempotency.store'") > 0;
    if (has_choice)
        set_server(admin, "idempotency.store", store);
    else if (store != "auto")
        throw std::runtime_error("this server has no setting idempotency.store");
}

void set_cleanup_interval(Connection& admin, int seconds) {
    set_server(admin, "idempotency.cleanup_interval", std::to_string(seconds));
    if (seconds == 0)
        wait_until(admin,
                   "NOT EXISTS (SELECT FROM pg_stat_activity"
                   " WHERE backend_type = 'idempotency sweeper')");
}

std::string key_of(const std::string& number) {
    return "overlay(md5(" + number + "::text) || '-01' PLACING '-' FROM 17 FOR 0)";
}

void insert_records(Connection& admin, const Batch& batch) {
    auto text = [](int value) { return std::to_string(value); };
    admin.query(
        "INSERT INTO idempotency.record (scope, principal, key, status, status_code, attempt,"
        " token, lease_us, created_at, claimed_at, expires_at, retained_until, finished_at, body)"
        " SELECT '" +
        batch.scope + "', '', " + key_of("i") +
        ", 'c', 201, 1, i, 60000000, t - interval '1 day', t - interval '1 day', t, t,"
        " t - interval '1 day', convert_to(repeat('x', " +
        text(kBodyBytes) + "), 'UTF8') FROM (SELECT i, now() + interval '1 s' * (" +
        text(batch.from) + " + (" + text(batch.to) + " - " + text(batch.from) + ") * (i - " +
        text(batch.first) + ")::float8 / " + text(batch.last - batch.first + 1) +
        ") AS t FROM generate_series(" + text(batch.first) + ", " + text(batch.last) +
        ") i) s ORDER BY " + (batch.layout == Layout::ByKey ? "3" : "i"));
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
