#include "webhooks.hpp"

#include <idempotency/problem.hpp>
#include <iostream>
#include <regex>
#include <stdexcept>

namespace payments {
namespace {

struct Event {
    std::string type;
    std::string resource_id;
    std::string updated_at;  // RFC 3339
    json data;
    std::string id;  // the same for each sending of the same event
};

// In the transaction of its effects: if they roll back, the event counts as not received.
constexpr char kOnce[] = "SELECT idem_once($1, scope => 'webhooks', wait => '5s')";

// An event older than the known state of its resource changes nothing.
constexpr char kApply[] = R"(
INSERT INTO payments.payment_status AS s (resource_id, type, updated_at, data)
VALUES ($1, $2, $3, $4::jsonb)
ON CONFLICT (resource_id) DO UPDATE
   SET type = excluded.type, updated_at = excluded.updated_at, data = excluded.data
 WHERE s.updated_at <= excluded.updated_at)";

constexpr char kLog[] = R"(
INSERT INTO payments.event_log (event_id, type, resource_id, updated_at, applied)
VALUES ($1, $2, $3, $4, $5))";

constexpr char kBegin[] = R"(
SELECT outcome, attempt, greatest(1, ceil(retry_after))::int AS retry_after
  FROM idem_begin($1, scope => 'webhooks'))";
constexpr char kComplete[] = "SELECT idem_complete($1, 204, scope => 'webhooks')";
constexpr char kFail[] = "SELECT idem_fail($1, $2, retryable => true, scope => 'webhooks')";

Answer acknowledged() {
    return {204, {}, ""};
}

Answer come_again(int seconds) {
    return idempotency::with(idempotency::problem(503, "/problems/event-failed",
                                                  "Event not handled", "Send it again later."),
                             "Retry-After", std::to_string(seconds));
}

// Short, and without control characters, which a key cannot contain. The server would also take
// "now" for a time, which means another moment each time it is sent.
std::string part(const json& event, const char* name, const char* form) {
    auto value = text(event, name);
    if (value.size() <= 100 && std::regex_match(value, std::regex(form))) return value;
    refuse("'" + std::string(name) + "' is malformed.");
}

Event read_event(pqxx::dbtransaction& tx, const std::string& body) try {
    constexpr char kWord[] = "[^\\x00-\\x1f\\x7f]+";
    constexpr char kTime[] =
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:]{8}(\\.[0-9]{1,9})?"
        "([Zz]|[+-][0-9]{2}:[0-9]{2})";
    const json parsed = object_in(body);
    Event event{part(parsed, "type", kWord), part(parsed, "resource_id", kWord),
                part(parsed, "updated_at", kTime), parsed.value("data", json()), ""};
    event.id =
        tx.exec_params1("SELECT idem_event_id($1, $2, $3::timestamptz), $4::jsonb", event.type,
                        event.resource_id, event.updated_at, event.data.dump())[0]
            .as<std::string>();
    return event;
} catch (const pqxx::data_exception&) {
    refuse("The event has parts that the database can't hold.");
}

void apply_once(pqxx::dbtransaction& tx, const Event& event) {
    if (!tx.exec_params1(kOnce, event.id)[0].as<bool>()) return;
    const auto result =
        tx.exec_params(kApply, event.resource_id, event.type, event.updated_at, event.data.dump());
    tx.exec_params0(kLog, event.id, event.type, event.resource_id, event.updated_at,
                    result.affected_rows() == 1);
}

// Simulates a failing handler: fails at the first data.failures attempts, or always.
void handle_flaky(pqxx::transaction_base&, const Event& event, int attempt) {
    const json failures = event.data.is_object() ? event.data.value("failures", json()) : json();
    if (failures.is_number_integer() && failures < attempt) return;
    throw std::runtime_error("flaky handler failed at attempt " + std::to_string(attempt));
}

// In a savepoint: the writes of a failing handler are undone, and the failure itself is recorded.
Answer attempt_event(pqxx::dbtransaction& tx, const Event& event, int attempt) {
    try {
        pqxx::subtransaction savepoint(tx);
        handle_flaky(savepoint, event, attempt);
        savepoint.commit();
    } catch (const std::runtime_error& failure) {
        tx.exec_params(kFail, event.id, failure.what());
        return come_again(1);
    }
    tx.exec_params(kComplete, event.id);
    return acknowledged();
}

// The policy of the scope "webhooks" decides about retries. `replay`: the event was handled before.
// `exhausted`: it is given up, and acknowledged so that the sender stops. Its last error is in
// payments.failed_events.
Answer attempt_by_policy(pqxx::dbtransaction& tx, const Event& event) {
    const auto claim = tx.exec_params1(kBegin, event.id);
    const auto outcome = claim["outcome"].as<std::string>();
    if (outcome == "execute") return attempt_event(tx, event, claim["attempt"].as<int>());
    const bool running = outcome == "in_progress" || outcome == "retry_later";
    return running ? come_again(claim["retry_after"].as<int>(1)) : acknowledged();
}

// Events of other types are acknowledged: the sender would repeat them for ever.
Answer handle(pqxx::dbtransaction& tx, const Event& event) {
    if (event.type == "flaky") return attempt_by_policy(tx, event);
    if (event.type.rfind("payment.", 0) == 0) apply_once(tx, event);
    return acknowledged();
}

}  // namespace

Answer receive(Pool& pool, const idempotency::Request& request) try {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    auto answer = handle(tx, read_event(tx, request.body));
    tx.commit();
    return answer;
} catch (const idempotency::Refusal& refusal) {
    return refusal.answer();
} catch (const std::exception& error) {
    const auto failure = idempotency::failure_of<Driver>(error);
    if (failure.is_connection() || failure.is_passing()) return idempotency::unavailable();
    std::cerr << "error: SQLSTATE " << failure.sqlstate << std::endl;
    return idempotency::rolled_back();
}

}  // namespace payments
