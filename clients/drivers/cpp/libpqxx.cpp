// Tries libpqxx, from 6.4 to 7; docs/drivers/cpp.md shows its output.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <vector>

using nlohmann::json;

struct Answer {
    int status;
    json headers;
    std::string body;
};

#if PQXX_VERSION_MAJOR < 7
// pqxx::binary_cast of libpqxx 7.
static pqxx::binarystring bytes(const std::string& value) {
    return pqxx::binarystring(value.data(), value.size());
}
static std::string bytes_of(const pqxx::field& field) {
    return pqxx::binarystring(field).str();
}
#else
static std::basic_string<std::byte> bytes(const std::string& value) {
    return {reinterpret_cast<const std::byte*>(value.data()), value.size()};
}
static std::string bytes_of(const pqxx::field& field) {
    const auto value = field.as<std::basic_string<std::byte> >();
    return {reinterpret_cast<const char*>(value.data()), value.size()};
}
#endif

// page: transaction
static const char* const kBegin = R"(
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c) AS problem
  FROM idem_begin($1, $2::jsonb, scope => 'pay', principal => $3) AS c)";
static const char* const kComplete =
    "SELECT idem_complete($1, 201, $2::bytea, $3::jsonb, scope => 'pay', principal => $4)";

// bytes and bytes_of: binarystring in libpqxx 6, std::basic_string<std::byte> in 7.
static Answer pay(pqxx::connection& connection, const std::string& key, const std::string& tenant,
                  int amount) {
    pqxx::work tx(connection);  // destroyed without commit, it is rolled back
    const auto claim = tx.exec_params1(kBegin, key, json{{"amount", amount}}.dump(), tenant);
    if (!claim["problem"].is_null()) {
        const auto problem = json::parse(claim["problem"].c_str());
        return {problem["status"], {{"Content-Type", "application/problem+json"}}, problem.dump()};
    }
    if (claim["outcome"].as<std::string>() == "replay") {
        return {claim["status_code"].as<int>(), json::parse(claim["headers"].c_str()),
                bytes_of(claim["body"])};
    }
    const auto paid =
        tx.exec_params1("INSERT INTO payment (amount) VALUES ($1) RETURNING id", amount);
    const Answer answer{
        201, {{"Content-Type", "application/json"}}, json{{"id", paid[0].as<long>()}}.dump()};
    tx.exec_params1(kComplete, key, bytes(answer.body), answer.headers.dump(), tenant);
    tx.commit();
    return answer;
}
// page: end

static const std::vector<std::string> kColumns = {
    "outcome",      "key",        "scope",          "principal",   "token",
    "attempt",      "status",     "status_code",    "headers",     "body",
    "body_omitted", "error",      "recovery_point", "state",       "holder",
    "retry_after",  "created_at", "finished_at",    "lease_until", "expires_at"};

// JSON with a backslash in it; decoding its escape leaves invalid JSON.
static const std::string kPath = R"({"path":"C:\\dir"})";

static json tries = json::array();
static json columns = json::object();

[[noreturn]] static void die(const std::string& what) {
    throw std::logic_error(what);
}

static void expect(bool holds, const std::string& what) {
    if (!holds) die(what);
}

// The SQLSTATE; for an exception of libpqxx without one, its class.
static std::string code_of(const std::exception& error) {
    if (const auto* sql = dynamic_cast<const pqxx::sql_error*>(&error)) {
        return sql->sqlstate().empty() ? "`sql_error` without an SQLSTATE"
                                       : std::string(sql->sqlstate());
    }
    if (dynamic_cast<const pqxx::conversion_error*>(&error) != nullptr) return "`conversion_error`";
    if (dynamic_cast<const pqxx::failure*>(&error) != nullptr) return "`failure`";
    return error.what();
}

// An empty text means that it works.
static void attempt(const std::string& about, const std::string& write,
                    const std::function<std::string()>& work) {
    std::string gives;
    try {
        gives = work();
    } catch (const std::exception& error) {
        gives = code_of(error);
    }
    tries.push_back(
        {{"about", about}, {"write", write}, {"gives", gives.empty() ? "works" : gives}});
}

// Each value arrives as text; its type is the first that can represent it without loss.
static std::string type_of(const std::string& name, const pqxx::field& field) {
    const std::string text = field.c_str();
    if (text.rfind("\\x", 0) == 0) return "string, \\x...";
    if (field.type() == 20 && std::to_string(field.as<long>()) == text) return "long";
    if (field.type() == 23 && std::to_string(field.as<int>()) == text) return "int";
    if (field.type() == 701 && field.as<double>() >= 0) return "double";
    if (field.type() == 16 && (field.as<bool>() ? "t" : "f") == text) return "bool";
    expect(field.as<std::string>() == text, name);
    return "string";
}

static pqxx::row in_autocommit(pqxx::connection& connection, const std::string& sql) {
    pqxx::nontransaction tx(connection);
    return tx.exec1(sql);
}

static pqxx::row look(pqxx::connection& connection, const std::string& sql) {
    const auto row = in_autocommit(connection, sql);
    for (const auto& field : row) {
        if (!field.is_null() && !columns.contains(field.name()))
            columns[field.name()] = type_of(field.name(), field);
    }
    return row;
}

static void look_at_columns(pqxx::connection& connection) {
    const std::string names = "'columns-1', scope => 'columns', principal => 'acme'";
    const auto begin =
        "SELECT * FROM idem_begin(" + names + ", lease => '1 minute', holder => 'me')";
    const auto ended = [&](const std::string& function, const std::string& arguments,
                           const std::string& token) {
        in_autocommit(connection, "SELECT " + function + "('columns-1', " + arguments +
                                      ", scope => 'columns', principal => 'acme', token => " +
                                      token + ")");
    };
    auto token = look(connection, begin)["token"].as<std::string>();
    look(connection, begin);
    ended("idem_checkpoint", R"('charged', '{"charge": 1}')", token);
    ended("idem_fail", "'no', retryable => true, retry_after => '0'", token);
    token = look(connection, begin)["token"].as<std::string>();
    ended("idem_complete", R"(201, '{"id": 1}', '{"X-A": ["1", "2"]}')", token);
    look(connection, begin);
    for (const auto& name : kColumns)
        expect(columns.contains(name), "nothing was seen in column " + name);
}

static void check_pay(pqxx::connection& connection) {
    const auto first = pay(connection, "pay-1", "acme", 100);
    const auto again = pay(connection, "pay-1", "acme", 100);
    const auto other = pay(connection, "pay-1", "acme", 200);
    expect(first.status == 201 && json::parse(first.body)["id"] > 0, first.body);
    expect(again.status == 201 && again.body == first.body && again.headers == first.headers,
           again.body);
    expect(other.status == 422 && other.body.find("mismatch") != std::string::npos, other.body);
    expect(in_autocommit(connection, "SELECT count(*) FROM payment")[0].as<int>() == 1,
           "not one payment");
}

// ---- tries; `connection` is for those that are rolled back ----

template <typename Value>
static std::string begun(pqxx::connection& connection, const std::string& arguments,
                         const Value& value) {
    pqxx::work tx(connection);
    tx.exec_params1("SELECT outcome FROM idem_begin(" + arguments + ")", value);
    return "";
}

// The body in the record.
template <typename Value>
static std::string body(pqxx::connection& connection, const std::string& arguments,
                        const Value& value) {
    pqxx::work tx(connection);
    tx.exec1("SELECT idem_begin('k')");
    tx.exec_params1("SELECT idem_complete('k', 200, " + arguments + ")", value);
    return bytes_of(tx.exec1("SELECT body FROM idem_get('k')")[0]);
}

template <typename Value>
static std::string completed(pqxx::connection& connection, const std::string& arguments,
                             const Value& value) {
    const auto stored = body(connection, arguments, value);
    return stored == kPath ? "" : "the body is `" + stored + "`";
}

template <typename Value>
static std::string lease(pqxx::connection& connection, const std::string& sql, const Value& value) {
    pqxx::work tx(connection);
    return tx.exec_params1(
                 "SELECT round(extract(epoch FROM lease_until - created_at))::integer"
                 "  FROM idem_begin('k', lease => " +
                     sql + ")",
                 value)[0]
               .template as<std::string>() +
           " seconds";
}

// The rows of idem_once_each.
static std::string each(pqxx::connection& connection, const std::string& parameter,
                        const std::string& keys) {
    pqxx::work tx(connection);
    std::string found;
    const auto sql = "SELECT idem_once_each(" + parameter + ", scope => 'keys')";
    for (const auto& row : tx.exec_params(sql, keys)) found += row[0].as<std::string>();
    return found;
}

static void try_keys(pqxx::connection& connection) {
    const std::string array = "ARRAY(SELECT jsonb_array_elements_text($1::jsonb))";
    const auto works = [&](const std::string& parameter, const std::string& keys,
                           const std::string& wanted) {
        const auto found = each(connection, parameter, keys);
        return found == wanted ? "" : "`" + found + "`";
    };
    attempt("keys", "`" + array + "` with a `std::string` of JSON",
            [&] { return works(array, R"(["b", "a", "b"])", "ba"); });
    attempt("keys", "the same, empty", [&] { return works(array, "[]", ""); });
    attempt("keys", "the same, with a `null` in it",
            [&] { return works(array, R"(["b", null])", ""); });
    attempt("keys", "`$1` with the `std::string` `{b,a,b}`",
            [&] { return works("$1", "{b,a,b}", "ba"); });
}

static void try_arguments(pqxx::connection& connection) {
    const std::string text = R"({"a": 1})", zero(1, '\0');
    attempt("key", "`$1` with a `std::string`",
            [&] { return begun(connection, "$1", std::string("k")); });
    attempt("key", "`$1` with an `int`", [&] { return begun(connection, "$1", 7); });
    attempt("request", "`$2::jsonb` with a `std::string` of JSON",
            [&] { return begun(connection, "'k', $1::jsonb", text); });
    attempt("request", "`$2` with a `std::string` of JSON",
            [&] { return begun(connection, "'k', $1", text); });
    attempt("request", "`$2::jsonb` with bytes",
            [&] { return begun(connection, "'k', $1::jsonb", bytes(text)); });
    attempt("body", "`$3::bytea` with bytes",
            [&] { return completed(connection, "$1::bytea", bytes(kPath)); });
    attempt("body", "`$3` with bytes", [&] { return completed(connection, "$1", bytes(kPath)); });
    attempt("body", "`$3` with bytes that are zero",
            [&] { return completed(connection, "$1", bytes(zero)); });
    attempt("body", "`$3` with a `std::string`",
            [&] { return completed(connection, "$1", kPath); });
    attempt("body", "`$3::bytea` with a `std::string`",
            [&] { return completed(connection, "$1::bytea", kPath); });
    attempt("body", "`$3::text` with a `std::string` that has a zero in it",
            [&] { return completed(connection, "$1::text", "a" + zero + "b"); });
    attempt("body", "`claim[\"body\"].as<std::string>()`", [&] {
        pqxx::work tx(connection);
        tx.exec1("SELECT idem_begin('k')");
        tx.exec_params1("SELECT idem_complete('k', 200, $1::bytea)", bytes(kPath));
        return "`" + tx.exec1("SELECT body FROM idem_get('k')")[0].as<std::string>().substr(0, 6) +
               "...`";
    });
    attempt("headers", "`$4::jsonb` with a `std::string` of JSON", [&] {
        body(connection, "'', $1::jsonb", std::string(R"({"X-A": ["1", "2"]})"));
        return "";
    });
    attempt("headers", "`$4::jsonb` with `{\"X-A\": 1}`",
            [&] { return body(connection, "'', $1::jsonb", std::string(R"({"X-A": 1})")); });
    attempt("lease", "`$5` with `30`", [&] { return lease(connection, "$1", 30); });
    attempt("lease", "`$5` with `30000`", [&] { return lease(connection, "$1", 30000); });
    attempt("lease", "`$5 * interval '1 ms'` with `30000`",
            [&] { return lease(connection, "$1 * interval '1 ms'", 30000); });
    attempt("lease", "`$5` with `\"30 s\"`",
            [&] { return lease(connection, "$1", std::string("30 s")); });
    attempt("principal", "`$1` with a null `const char*`", [&] {
        const char* const nothing = nullptr;
        return begun(connection, "'k', principal => $1", nothing);
    });
    attempt("null", "`status_code` of an `execute`, `as<int>()`", [&] {
        pqxx::work tx(connection);
        return tx.exec1("SELECT status_code FROM idem_begin('k')")[0].as<std::string>();
    });
    attempt("null", "the same, `as<int>(0)`", [&] {
        pqxx::work tx(connection);
        return "`" +
               std::to_string(tx.exec1("SELECT status_code FROM idem_begin('k')")[0].as<int>(0)) +
               "`";
    });
    attempt("null", "the same, `c_str()`", [&] {
        pqxx::work tx(connection);
        return "`\"" + std::string(tx.exec1("SELECT body FROM idem_begin('k')")[0].c_str()) + "\"`";
    });
}

static void try_session(pqxx::connection& connection) {
    attempt("commit", "begin and complete, the `pqxx::work` destroyed without `commit()`", [&] {
        {
            pqxx::work tx(connection);
            tx.exec1("SELECT idem_begin('dropped')");
            tx.exec1("SELECT idem_complete('dropped', 200)");
        }
        return "rolled back, without an error: " +
               in_autocommit(connection,
                             "SELECT count(*) FROM idempotency.record WHERE key = 'dropped'")[0]
                   .as<std::string>() +
               " records";
    });
    const auto token =
        look(connection, "SELECT token FROM idem_begin('token', lease => '1 minute')")["token"]
            .as<long>();
    attempt("token", "the token as it came", [&] {
        pqxx::nontransaction tx(connection);
        expect(tx.exec_params1("SELECT idem_extend('token', $1) > now()", token)[0].as<bool>(),
               "not extended");
        return "";
    });
    attempt("autocommit", "begin and complete in a `pqxx::nontransaction`", [&]() -> std::string {
        in_autocommit(connection, "SELECT idem_begin('autocommit')");
        try {
            in_autocommit(connection, "SELECT idem_complete('autocommit', 200)");
        } catch (const std::exception& error) {
            const auto status =
                in_autocommit(connection, "SELECT status FROM idem_get('autocommit')")[0]
                    .as<std::string>();
            return code_of(error) + ", and the key stays `" + status + "`";
        }
        return "";
    });
    attempt("error", "`sql_error::sqlstate()`", [&]() -> std::string {
        try {
            in_autocommit(connection, "SELECT idem_extend('token', 1)");
        } catch (const pqxx::sql_error& error) {
            return "`" + std::string(error.sqlstate()) + "`";
        }
        return "";
    });
    attempt("error", "40001", [&]() -> std::string {
        try {
            in_autocommit(connection, "DO $$ BEGIN RAISE serialization_failure; END $$");
        } catch (const pqxx::serialization_failure& error) {
            const std::exception& any = error;
            const bool is_sql_error = dynamic_cast<const pqxx::sql_error*>(&any) != nullptr;
            return std::string("a `serialization_failure`, which is ") +
                   (is_sql_error ? "an" : "no") + " `sql_error`";
        }
        return "";
    });
    for (int i = 0; i < 10; i++) {
        pqxx::nontransaction tx(connection);
        tx.exec_params1("SELECT outcome FROM idem_begin($1) -- ten times", std::string("prepared"));
    }
    const auto left = in_autocommit(connection,
                                    "SELECT count(*) FROM pg_prepared_statements"
                                    " WHERE position('ten' || ' times' IN statement) > 0")[0]
                          .as<int>();
    tries.push_back(
        {{"about", "prepared"},
         {"write", "the same statement ten times, by `exec_params`"},
         {"gives", std::to_string(left) +
                       (left == 1 ? " prepared statement stays" : " prepared statements stay") +
                       " in the session"}});
}

// Through a pooler in transaction mode; the other client takes the server connection that was used last.
static void try_pooler(const std::string& how,
                       const std::function<std::string(pqxx::work&, const std::string&)>& claim) {
    attempt("pooler", "behind a pooler in transaction mode, " + how, [&] {
        const std::string place = "host=127.0.0.1 port=" + std::string(std::getenv("POOLER_PORT"));
        pqxx::connection client(place), other(place);
        const auto run = [&](pqxx::connection& connection, const std::string& scope,
                             const std::function<void()>& inside) {
            pqxx::work tx(connection);
            expect(claim(tx, scope) == scope, "another's statement");
            inside();
            tx.commit();
        };
        for (int i = 0; i < 10; i++) {
            run(client, "mine", [] {});
            run(other, "yours", [&] { run(client, "mine", [] {}); });
        }
        return "";
    });
}

int main() try {
    pqxx::connection connection("");
    look_at_columns(connection);
    check_pay(connection);
    try_keys(connection);
    try_arguments(connection);
    try_session(connection);
    const auto sql = [](const std::string& scope) {
        return "SELECT scope FROM idem_begin($1, scope => '" + scope + "')";
    };
    try_pooler("`exec_params`", [&](pqxx::work& tx, const std::string& scope) {
        return tx.exec_params1(sql(scope), std::string("key"))[0].as<std::string>();
    });
    try_pooler("`prepare` and `exec_prepared`", [&](pqxx::work& tx, const std::string& scope) {
        static std::map<const void*, bool> known;
        auto& connection = tx.conn();
        if (!known[&connection]) connection.prepare("claim", sql(scope));
        known[&connection] = true;
        return tx.exec_prepared1("claim", std::string("key"))[0].as<std::string>();
    });
    const auto version = std::to_string(PQXX_VERSION_MAJOR);
    std::cout << json{{"driver", "cpp/libpqxx"},
                      {"version", "libpqxx " + version},
                      {"columns", columns},
                      {"tries", tries}}
                     .dump()
              << std::endl;
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
