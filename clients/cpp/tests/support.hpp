// A database to try things in: the one that PGHOST, PGPORT, PGUSER and PGDATABASE name.
#pragma once

#include <gtest/gtest.h>

#include <idempotency/libpq.hpp>
#include <idempotency/pqxx.hpp>
#include <random>
#include <string>

namespace idempotency {

inline std::string unique(const std::string& prefix) {
    static std::mt19937_64 random{std::random_device{}()};
    return prefix + "-" + std::to_string(random());
}

inline Value ask(const std::string& statement, const Values& values = {}) {
    static LibpqConnection connection("");
    const Row row = connection.run(statement.c_str(), values);
    return row.empty() ? std::nullopt : row[0];
}

inline void prepare_database() {
    ask("SET client_min_messages = warning");
    ask("CREATE EXTENSION IF NOT EXISTS idempotency");
    ask("CREATE TABLE IF NOT EXISTS client_effect (key text NOT NULL)");
    ask("SELECT idem_policy_set('unsure', on_lease_expiry => 'unknown')");
    ask("SELECT idem_policy_set('window', retention => '1 day')");
}

inline constexpr char kEffect[] = "INSERT INTO client_effect VALUES ($1)";

inline int effects(const std::string& key) {
    return std::stoi(*ask("SELECT count(*) FROM client_effect WHERE key = $1", {key}));
}

inline std::string status(const std::string& key, const std::string& scope = "test") {
    return ask("SELECT status FROM idem_get($1, $2, 'me')", {key, scope}).value_or("");
}

// Which session a statement gets, and its settings, are the pooler's then.
inline bool is_pooled() {
    const char* port = std::getenv("PGPORT");
    return port != nullptr && ask("SELECT inet_server_port()") != port;
}

inline constexpr auto kNulOrTooLarge = {R"("\u0000")", "1e200000"};  // JSON, but not jsonb

inline Call call_for(const std::string& key, const std::string& request = "{}") {
    Call call;
    call.key = key;
    call.request = request;
    call.method = "POST";
    call.target = "/test";
    call.scope = "test";
    call.principal = "me";
    return call;
}

}  // namespace idempotency
