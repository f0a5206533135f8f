#include "contenders/business.hpp"

#include <cinttypes>
#include <cstdio>
#include <random>
#include <stdexcept>

#include "contenders/contenders.hpp"

namespace idem::bench {
namespace {

std::mt19937_64& generator() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    return random;
}

// No table has more than it needs: each index that the bare transaction maintained, too, would
// make everybody else look cheaper. The table of keys has not even one for removing old keys.
constexpr char kTables[] = R"(
DROP SCHEMA IF EXISTS bench CASCADE;
CREATE SCHEMA bench;
CREATE TABLE bench.payment (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account  bigint NOT NULL,
    amount   bigint NOT NULL,
    currency text NOT NULL DEFAULT 'EUR',
    made_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE bench.keyed_payment (
    LIKE bench.payment INCLUDING ALL,
    request_key text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE bench.request_key (
    key            text COLLATE "C" PRIMARY KEY,
    created_at     timestamptz NOT NULL DEFAULT now(),
    recovery_point text NOT NULL DEFAULT 'started',
    status_code    integer,
    body           text
);
CREATE FUNCTION bench.pay(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.payment (account, amount)
    VALUES ((request ->> 'account')::bigint, (request ->> 'amount')::bigint);
    RETURN to_jsonb(repeat('x', 198));  -- with its quotes, as long as the others' bodies
END $$;
)";

}  // namespace

const std::string& response_body() {
    static const std::string body(kBodyBytes, 'x');
    return body;
}

std::string random_key() {
    char key[37];
    std::snprintf(key, sizeof(key), "%016" PRIx64 "-%016" PRIx64 "-01", generator()(),
                  generator()());
    return key;
}

void expect(const std::string& answer, const char* wanted) {
    if (answer != wanted)
        throw std::runtime_error("answered '" + answer + "' instead of '" + wanted + "'");
}

void create_tables(Connection& admin) {
    admin.query(kTables);
}

void empty_tables(Connection& admin) {
    admin.query(
        "TRUNCATE idempotency.record, bench.payment, bench.keyed_payment, bench.request_key");
}

void prepare_business(Connection& sql) {
    sql.prepare("start", "BEGIN");
    sql.prepare("commit", "COMMIT");
    sql.prepare("pay", "INSERT INTO bench.payment (account, amount) VALUES ($1, $2)");
}

Call start() {
    return {"start", {}};
}

Call commit() {
    return {"commit", {}};
}

Call pay() {
    return {"pay", random_payment()};
}

std::vector<std::string> random_payment() {
    return {std::to_string(generator()() % 1000000), std::to_string(generator()() % 10000)};
}

Work bare_transaction(Client& client) {
    prepare_business(client.sql);
    return [&sql = client.sql] {
        sql.ask(start());
        expect(sql.ask(pay()), "1");
        sql.ask(commit());
    };
}

namespace {

// With a key, as the last argument.
Call pay_once() {
    auto arguments = random_payment();
    arguments.push_back(random_key());
    return {"pay_once", arguments};
}

void prepare_pay_once(Connection& sql) {
    sql.prepare("pay_once",
                "INSERT INTO bench.keyed_payment (account, amount, request_key)"
                " VALUES ($1, $2, $3) ON CONFLICT (request_key) DO NOTHING");
}

}  // namespace

Work unique_key(Client& client) {
    prepare_business(client.sql);
    prepare_pay_once(client.sql);
    return [&sql = client.sql] {
        sql.ask(start());
        expect(sql.ask(pay_once()), "1");
        sql.ask(commit());
    };
}

Work unique_key_statement(Client& client) {
    prepare_pay_once(client.sql);
    return [&sql = client.sql] { expect(sql.ask(pay_once()), "1"); };
}

}  // namespace idem::bench
