#include "run/database.hpp"

#include <fstream>
#include <pqxx/pqxx>
#include <regex>

#include "load/client.hpp"

namespace idem::chaos {
namespace {

std::string milliseconds(Micros duration) {
    return "'" + std::to_string(duration / kMillisecond) + " ms'";
}

std::string policies(std::int64_t body_limit) {
    std::string sql;
    for (const auto& [scope, rules] : scopes()) {
        sql += "SELECT idem_policy_set('" + scope + "', ttl => " + milliseconds(rules.ttl) +
               ", retention => " + milliseconds(rules.retention) + ", lease => " +
               milliseconds(rules.lease) + ", retry_base => '1 ms', retry_cap => '20 ms'" +
               ", max_body_bytes => " + std::to_string(body_limit);
        if (rules.max_attempts > 0)
            sql += ", max_attempts => " + std::to_string(rules.max_attempts);
        if (rules.unknown_on_expiry) sql += ", on_lease_expiry => 'unknown'";
        sql += ");\n";
    }
    return sql;
}

// No key: a second effect shall be seen, not prevented.
const char* const kEffects =
    "CREATE SCHEMA chaos;\n"
    "CREATE TABLE chaos.effect (id text, transaction bigint, scope text, principal text,"
    " key text);\n";

// What idem_execute runs.
const char* const kOperation = R"(
CREATE FUNCTION chaos.work(request jsonb) RETURNS idem_response LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.effect VALUES (request->>'id', (request->>'transaction')::bigint,
        request->>'scope', request->>'principal', request->>'key');
    IF (request->>'fails')::boolean THEN RAISE 'it did not work'; END IF;
    RETURN idem_response((request->>'status_code')::int, NULL::jsonb, request->>'body');
END $$;
)";

std::string install(std::int64_t body_limit) {
    return "CREATE EXTENSION idempotency;\n" + policies(body_limit) + kOperation;
}

void expect(const Server& server, int invariant, const std::string& what, const std::string& sql,
            const std::string& wanted, std::vector<Violation>* found) {
    const std::string value = server.value(sql);
    if (value != wanted)
        found->push_back({invariant, what + ": " + value + " instead of " + wanted});
}

void check_leaks(const Server& server, std::vector<Violation>* found) {
    expect(
        server, 18, "locks of ours",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756",
        "0", found);
    expect(server, 18, "prepared transactions", "SELECT count(*) FROM pg_prepared_xacts", "0",
           found);
    expect(server, 18, "open transactions",
           "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'", "0",
           found);
    expect(server, 18, "launchers",
           "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'idempotency launcher'", "1",
           found);
}

void check_structure(const Server& server, std::vector<Violation>* found) {
    try {
        pqxx::connection connection(server.connection_string());
        pqxx::nontransaction tx(connection);
        tx.exec("CREATE EXTENSION IF NOT EXISTS amcheck");
        tx.exec(
            "SELECT bt_index_check(indexrelid, true) FROM pg_index"
            " WHERE indrelid = 'idempotency.record'::regclass AND indisvalid");
        tx.exec("BEGIN ISOLATION LEVEL REPEATABLE READ");
        tx.exec(
            "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;"
            "SET LOCAL enable_bitmapscan = off");
        const std::string rows = tx.exec("SELECT count(*) FROM idempotency.record")[0][0].c_str();
        tx.exec(
            "RESET enable_indexscan; RESET enable_indexonlyscan; SET LOCAL enable_seqscan = off");
        const std::string entries =
            tx.exec("SELECT count(*) FROM idempotency.record WHERE scope >= ''")[0][0].c_str();
        tx.exec("COMMIT");
        if (rows != entries)
            found->push_back({20, rows + " rows, but " + entries + " by the primary key"});
    } catch (const pqxx::sql_error& error) {
        found->push_back({20, error.what()});
    }
}

// Faults of ours end processes by signals 3, 9 and 15, and by nothing else.
void check_log(const Server& server, std::vector<Violation>* found) {
    static const std::regex kBroken(
        "PANIC:|TRAP:|terminated by signal (4|6|7|8|11)\\b|"
        "unexpected C\\+\\+ exception|invalid page|could not read block");
    std::ifstream log(server.folder() + "/server.log");
    for (std::string line; std::getline(log, line);)
        if (std::regex_search(line, kBroken)) found->push_back({19, "the server's log: " + line});
}

}  // namespace

void set_up(const Server& server, std::int64_t body_limit) {
    server.query("DROP SCHEMA IF EXISTS chaos CASCADE");
    server.query("DROP EXTENSION IF EXISTS idempotency CASCADE");
    server.query(kEffects + install(body_limit));
}

std::string drop_and_create(std::int64_t body_limit) {
    return "BEGIN; LOCK TABLE idempotency.record, idempotency.policy; DROP EXTENSION idempotency "
           "CASCADE;" +
           install(body_limit) + "COMMIT";
}

std::vector<Effect> read_effects(const Server& server) {
    pqxx::connection connection(server.connection_string());
    pqxx::nontransaction tx(connection);
    std::vector<Effect> effects;
    for (const auto& row :
         tx.exec("SELECT id, transaction, scope, principal, key FROM chaos.effect"))
        effects.push_back({row[0].c_str(),
                           row[1].as<std::int64_t>(),
                           {row[2].c_str(), row[3].c_str(), row[4].c_str()}});
    return effects;
}

void await_end_of_leases(const Server& server) {
    while (server.value("SELECT count(*) FROM idempotency.record"
                        " WHERE status = 'i' AND lease_until > clock_timestamp()") != "0")
        rest(50 * kMillisecond);
}

std::vector<Violation> check_at_rest(const Server& server) {
    std::vector<Violation> found;
    check_leaks(server, &found);
    check_structure(server, &found);
    check_log(server, &found);
    return found;
}

}  // namespace idem::chaos
