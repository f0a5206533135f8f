#include "run/database.hpp"

#include <fstream>
#include <iterator>
#include <pqxx/pqxx>
#include <regex>
#include <sstream>

#include "load/client.hpp"
#include "run/tables.hpp"

namespace idem::chaos {
namespace {

std::string milliseconds(Micros duration) {
    return "'" + std::to_string(duration / kMillisecond) + " ms'";
}

std::string word_of(OnAbandon what) {
    if (what == OnAbandon::Fail) return "fail";
    return what == OnAbandon::Release ? "release" : "unknown";
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
        if (rules.abandon_after > 0)
            sql += ", abandon_after => " + milliseconds(rules.abandon_after) + ", on_abandon => '" +
                   word_of(rules.on_abandon) + "'";
        if (rules.personal) sql += ", store_request => true, keep_history => true";
        if (rules.closed) sql += ", allowed_role => 'chaos_keeper'";
        sql += ");\n";
    }
    return sql +
           "SELECT idem_grant('chaos_stranger');\n"
           "GRANT USAGE ON SCHEMA idempotency TO chaos_owner;\n";
}

std::string install(std::int64_t body_limit) {
    return "CREATE EXTENSION idempotency;\n" + policies(body_limit) + work_operation();
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
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND 18756 IN (objsubid, classid)"
        " AND pid NOT IN (SELECT pid FROM pg_stat_activity"
        "                 WHERE backend_type = 'idempotency sweeper')",
        "0", found);
    expect(server, 18, "prepared transactions", "SELECT count(*) FROM pg_prepared_xacts", "0",
           found);
    expect(server, 18, "open transactions",
           "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'", "0",
           found);
    // The edition without C has none.
    expect(server, 18, "launchers",
           "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'idempotency launcher'",
           has_module(server) ? "1" : "0", found);
}

// The table of the records or, on a node of a cluster, its shards.
std::vector<std::string> record_tables(pqxx::nontransaction& tx, bool in_shards) {
    std::vector<std::string> tables;
    if (!in_shards) return {"idempotency.record"};
    tx.exec("SET citus.override_table_visibility = off");
    for (const auto& row :
         tx.exec("SELECT oid::regclass FROM pg_class WHERE relname ~ '^record_[0-9]+$'"
                 " AND relkind = 'r' AND relnamespace = 'idempotency'::regnamespace"))
        tables.emplace_back(row[0].c_str());
    return tables;
}

void check_table(pqxx::nontransaction& tx, const std::string& table,
                 std::vector<Violation>* found) {
    tx.exec(
        "SELECT bt_index_check(indexrelid, true) FROM pg_index"
        " WHERE indrelid = '" +
        table + "'::regclass AND indisvalid");
    tx.exec("BEGIN ISOLATION LEVEL REPEATABLE READ");
    tx.exec(
        "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;"
        "SET LOCAL enable_bitmapscan = off");
    const std::string rows = tx.exec("SELECT count(*) FROM " + table)[0][0].c_str();
    tx.exec("RESET enable_indexscan; RESET enable_indexonlyscan; SET LOCAL enable_seqscan = off");
    const std::string entries =
        tx.exec("SELECT count(*) FROM " + table + " WHERE scope >= ''")[0][0].c_str();
    tx.exec("COMMIT");
    if (rows != entries)
        found->push_back(
            {20, table + ": " + rows + " rows, but " + entries + " by the primary key"});
}

void check_structure(const Server& server, bool in_shards, std::vector<Violation>* found) {
    try {
        pqxx::connection connection(server.connection_string());
        pqxx::nontransaction tx(connection);
        for (const std::string& table : record_tables(tx, in_shards)) check_table(tx, table, found);
    } catch (const pqxx::sql_error& error) {
        found->push_back({20, error.what()});
    }
}

// Our faults end processes only by signals 3, 9 and 15. If a server's first process is killed,
// Citus may raise an error in its backends at each step of their abort, until the error stack is
// full.
void check_log(const Server& server, std::vector<Violation>* found) {
    static const std::regex kBroken(
        "PANIC:|TRAP:|terminated by signal (4|6|7|8|11)\\b|"
        "unexpected C\\+\\+ exception|invalid page|could not read block|"
        "WARNING: .*(leak|still active|not closed)|AbortTransaction while in");
    static const std::regex kPid("\\[[0-9]+\\]");
    std::set<std::string> orphans;
    std::ifstream log(server.folder() + "/server.log");
    for (std::string line; std::getline(log, line);) {
        const bool orphaned = line.find("postmaster was shut down, exiting") != std::string::npos;
        if (!orphaned && !std::regex_search(line, kBroken)) continue;
        std::smatch pid;
        (void)std::regex_search(line, pid, kPid);
        if (orphaned)
            orphans.insert(pid.str());
        else if (orphans.count(pid.str()) == 0)
            found->push_back({19, "the server's log: " + line});
    }
}

// ---- rows written by the work ----

// From libpqxx 8 on a row of a result is of another type than one alone.
template <typename Row>
Key key_of(const Row& row, int column) {
    return {row[column].c_str(), row[column + 1].c_str(), row[column + 2].c_str()};
}

// As "1 2 3"
std::vector<std::int64_t> numbers_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::int64_t>(in), {}};
}

void read_effects(pqxx::nontransaction& tx, History* history) {
    for (const auto& row :
         tx.exec("SELECT id, transaction, scope, principal, key FROM chaos.effect"))
        history->effects.push_back({row[0].c_str(), row[1].as<std::int64_t>(), key_of(row, 2)});
}

PartKind kind_of(const std::string& word) {
    if (word == "once") return PartKind::Once;
    if (word == "point") return PartKind::Point;
    return word == "alone" ? PartKind::Alone : PartKind::Other;
}

void read_parts(pqxx::nontransaction& tx, History* history) {
    for (const auto& row :
         tx.exec("SELECT n, id, transaction, scope, principal, key, generation, token, kind"
                 " FROM chaos.part ORDER BY n"))
        history->parts.push_back({row[0].as<std::int64_t>(), row[1].c_str(),
                                  row[2].as<std::int64_t>(), key_of(row, 3), row[6].c_str(),
                                  row[7].as<std::int64_t>(), kind_of(row[8].c_str())});
}

void read_looks(pqxx::nontransaction& tx, History* history) {
    for (const auto& row :
         tx.exec("SELECT transaction, scope, principal, key, token, array_to_string(latest, ' '),"
                 " coalesce(point, ''), point_seen FROM chaos.look"))
        history->looks.push_back({row[0].as<std::int64_t>(), key_of(row, 1),
                                  row[4].as<std::int64_t>(), numbers_of(row[5].c_str()),
                                  row[6].c_str(), row[7].as<bool>()});
}

// Those of the transactions, and as the last the present state.
void read_readings(pqxx::nontransaction& tx, History* history) {
    for (const auto& row :
         tx.exec("SELECT transaction, object, ordered, array_to_string(writers, ' ')"
                 " FROM chaos.reading"
                 " UNION ALL SELECT 0, grp || '/' || slot, true, array_to_string(writers, ' ')"
                 " FROM chaos.account WHERE writers <> '{}'"
                 " UNION ALL SELECT 0, grp::text, false, string_agg(transaction::text, ' ')"
                 " FROM chaos.entry GROUP BY grp"))
        history->reads.push_back({row[0].as<std::int64_t>(), row[1].c_str(), row[2].as<bool>(),
                                  numbers_of(row[3].c_str())});
}

}  // namespace

void set_up(const Server& server, std::int64_t body_limit) {
    server.query("DROP SCHEMA IF EXISTS chaos CASCADE");
    server.query("DROP EXTENSION IF EXISTS idempotency CASCADE");
    server.query(work_tables() + install(body_limit));
    server.query("CREATE EXTENSION IF NOT EXISTS amcheck");
}

// The seed stays, as after a restore: otherwise calls that have waited for the new tables would
// take other locks than later ones, and only the row would keep them apart.
std::string drop_and_create(std::int64_t body_limit) {
    return "BEGIN; LOCK TABLE idempotency.record, idempotency.policy;"
           " CREATE TEMP TABLE kept_seed ON COMMIT DROP AS SELECT value FROM idempotency.seed;"
           " DROP EXTENSION idempotency CASCADE;" +
           install(body_limit) +
           "UPDATE idempotency.seed SET value = (SELECT value FROM kept_seed); COMMIT";
}

bool has_module(const Server& server) {
    return server.value(
               "SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
               " WHERE p.proname = 'idem_begin' AND l.lanname = 'c'") != "0";
}

bool has_same_statement(const Server& server) {
    return server.value(
               "SELECT count(*) FROM pg_proc WHERE proname = 'idem_begin'"
               " AND 'same_statement' = ANY (proargnames)") != "0";
}

void read_work(const Server& server, bool foreign, History* history) {
    pqxx::connection connection(server.connection_string());
    pqxx::nontransaction tx(connection);
    read_effects(tx, history);
    read_parts(tx, history);
    read_looks(tx, history);
    read_readings(tx, history);
    if (!foreign) return;
    for (const auto& row : tx.exec("SELECT id, transaction FROM chaos.home"))
        history->foreign.push_back({row[0].c_str(), row[1].as<std::int64_t>()});
}

void await_end_of_leases(const Server& server) {
    while (server.value("SELECT count(*) FROM idempotency.record"
                        " WHERE status = 'i' AND lease_until > clock_timestamp()") != "0")
        rest(50 * kMillisecond);
}

std::vector<Violation> check_at_rest(const Server& server) {
    std::vector<Violation> found;
    check_leaks(server, &found);
    check_structure(server, false, &found);
    check_log(server, &found);
    return found;
}

std::vector<Violation> check_node(const Server& server) {
    std::vector<Violation> found;
    check_leaks(server, &found);
    check_structure(server, true, &found);
    check_log(server, &found);
    return found;
}

std::vector<Violation> check_standby(const Server& server, bool in_shards) {
    std::vector<Violation> found;
    check_structure(server, in_shards, &found);
    check_log(server, &found);
    return found;
}

}  // namespace idem::chaos
