#include "flaky.hpp"

#include <stdexcept>

#include <idempotency/problem.hpp>

namespace webhooks {
namespace {

using nlohmann::json;

constexpr char kBegin[] = R"(
SELECT outcome, attempt, greatest(1, ceil(retry_after))::int AS retry_after
  FROM idem_begin($1, scope => 'webhooks'))";
constexpr char kComplete[] = "SELECT idem_complete($1, 204, scope => 'webhooks')";
constexpr char kFail[] = "SELECT idem_fail($1, $2, retryable => true, scope => 'webhooks')";

idempotency::Answer acknowledged() {
    return {204, {}, ""};
}

idempotency::Answer come_again(int seconds) {
    auto response = idempotency::problem(503, "/problems/event-failed", "Event not handled",
                                         "Send the event again later.");
    response.headers.emplace_back("Retry-After", std::to_string(seconds));
    return response;
}

// Simulates a failing handler: fails at the first data.failures attempts, or always.
void handle_event(pqxx::transaction_base&, const Event& event, int attempt) {
    const json failures = event.data.is_object() ? event.data.value("failures", json()) : json();
    if (failures.is_number_integer() && failures < attempt) return;
    throw std::runtime_error("flaky handler failed at attempt " + std::to_string(attempt));
}

// In a savepoint: the writes of a failing handler are undone, and the failure itself is recorded.
idempotency::Answer attempt_event(pqxx::work& tx, const Event& event, int attempt) {
    try {
        pqxx::subtransaction savepoint(tx);
        handle_event(savepoint, event, attempt);
        savepoint.commit();
    } catch (const std::runtime_error& failure) {
        tx.exec_params(kFail, event.id, failure.what());
        return come_again(1);
    }
    tx.exec_params(kComplete, event.id);
    return acknowledged();
}

}  // namespace

// `replay`: the event was handled before. `exhausted`: it is given up, and acknowledged so that the
// sender stops. The last error is in payments.failed_events.
idempotency::Answer handle_flaky(pqxx::work& tx, const Event& event) {
    const auto claim = tx.exec_params1(kBegin, event.id);
    const auto outcome = claim["outcome"].as<std::string>();
    if (outcome == "execute") return attempt_event(tx, event, claim["attempt"].as<int>());
    const bool running = outcome == "in_progress" || outcome == "retry_later";
    return running ? come_again(claim["retry_after"].as<int>(1)) : acknowledged();
}

}  // namespace webhooks
