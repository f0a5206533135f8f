// Work that is SQL: claim, effects and answer in one transaction. A crash frees the key at once.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "leased.hpp"

namespace idempotency {

// Call it before a COMMIT that follows statements of the application. If one of them has failed,
// PostgreSQL turns the COMMIT into a ROLLBACK, which libpqxx does not report.
inline constexpr char kCheck[] = "SELECT 1";

// Runs the work if the key is free; else the decision gives the answer. Work is
// Answer(Driver::Transaction&, const Decision&). There is no call to complete it: the returned
// answer is stored and committed, or rolled back if it is not to be kept. An exception rolls back,
// and is thrown again.
//
// After a serialization failure or a lost connection, all of it runs again. After a COMMIT without
// an answer the record shows whether it took effect: then it is replayed.
template <typename Driver, typename Work>
std::pair<Decision, std::optional<Answer>> transactionally(
    Pool<Driver>& pool, Call call, const Rules& rules, const Work& work,
    const std::function<void(const Decision&)>& on_execute = {}) {
    using Transaction = typename Driver::Transaction;
    call.lease.reset();  // with one the claim might stay open at COMMIT
    for (int attempt = 1;;) {
        bool connected = false, begun = false;
        try {
            const auto loan = pool.lend();
            connected = true;
            std::optional<Watchdog::Guard> limit;
            limit.emplace(
                loan->limit(pool.options().timeout + call.wait.value_or(Milliseconds(0))));
            Transaction tx(**loan);
            const auto run = detail::run_in<Driver>(tx);
            Decision decision = protocol::begin(run, call);
            limit.reset();
            begun = true;
            if (!decision.execute()) return {std::move(decision), std::nullopt};

            if (!call.derive) call.key = decision.claim.key;  // the server may have made it
            if (on_execute) on_execute(decision);
            Answer answer = storable(work(tx, std::as_const(decision)));
            if (!rules.keep(answer.status)) return {std::move(decision), std::move(answer)};
            limit.emplace(loan->limit(pool.options().timeout));
            detail::complete(run, decision.claim, answer, rules);
            tx.commit();
            return {std::move(decision), std::move(answer)};
        } catch (const std::exception& error) {
            const auto failure = failure_of<Driver>(error);
            if (!begun && call.request && failure.is_refused_by_jsonb()) {
                compare_as_bytes(call);
                continue;
            }
            const bool again = failure.is_serialization() || (connected && failure.is_connection());
            if (!again || attempt >= rules.attempts) throw;
            // The first try's backend may still be busy with its COMMIT.
            call.wait = std::max(call.wait.value_or(Milliseconds(0)), Milliseconds(1000));
        }
        detail::pause_before_attempt(attempt++);
    }
}

}  // namespace idempotency
