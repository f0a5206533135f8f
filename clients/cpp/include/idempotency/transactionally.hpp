// Work that is SQL: claim, effects and answer in one transaction. A crash frees the key at once.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "leased.hpp"

namespace idempotency {

template <typename Driver, typename Work>
std::pair<Decision, std::optional<Answer>> transactionally(
    Pool<Driver>& pool, Call call, const Rules& rules, const Work& work,
    const std::function<void(const Decision&)>& on_execute = {});

namespace detail {

// Runs work that has a transaction on this loan. A thread can't be stopped: where the work is late,
// its transaction ends at once, and HandlerLate is thrown when the work returns.
template <typename Loan, typename Work>
Answer in_time(Loan& loan, const Rules& rules, const Work& work) {
    const auto longest =
        rules.handler_timeout.value_or(Milliseconds(contract::kDefaultHandlerTimeoutMs));
    const auto end = moment_after(longest);
    // The thread that looks at the time may be late itself.
    const auto late = [&] { return loan.late() || Clock::now() >= end; };
    Answer answer;
    try {
        const auto limit = loan.give_up_after(longest);
        answer = storable(work());
    } catch (...) {
        if (late()) throw HandlerLate();
        throw;
    }
    if (late()) throw HandlerLate();
    return answer;
}

// idem_complete, or idem_unknown, and COMMIT. A claim that is not there was not lost: the handler
// has ended its transaction.
inline void end_transactional(Guard& guard, const ClaimId& claim, const Answer& answer,
                              Verdict verdict, const Rules& rules) try {
    guard.end(ending(claim, answer, verdict, rules));
} catch (const SqlError& error) {
    if (failure(error).is_lost_claim()) throw TransactionEnded();
    throw;
}

// Under a claim of its own, after the work was rolled back. Another request may have had the key
// in between: then its answer is the one.
template <typename Driver>
std::pair<Decision, std::optional<Answer>> keep(Pool<Driver>& pool, Call call, const Rules& rules,
                                                const Answer& answer) {
    using Transaction = typename Driver::Transaction;
    return transactionally(pool, std::move(call), rules,
                           [&](Transaction&, const Decision&) { return answer; });
}

}  // namespace detail

// Runs the work if the key is free; else the decision gives the answer. Work is
// Answer(Driver::Transaction&, const Decision&). There is no call to complete it: the returned
// answer is stored and committed, or rolled back if it is not to be kept. An exception rolls back,
// and is thrown again, except for a Refusal with a 4xx: its answer is stored without the work.
//
// After a serialization failure or a lost connection, all of it runs again. After a COMMIT without
// an answer the record shows whether it took effect: then it is replayed.
template <typename Driver, typename Work>
std::pair<Decision, std::optional<Answer>> transactionally(
    Pool<Driver>& pool, Call call, const Rules& rules, const Work& work,
    const std::function<void(const Decision&)>& on_execute) {
    using Transaction = typename Driver::Transaction;
    call.lease.reset();  // with one the claim might stay open at COMMIT
    const auto waiting = [&call] { return call.wait.value_or(Milliseconds(0)); };
    for (int attempt = 1;;) {
        bool connected = false, begun = false;
        try {
            const auto loan = pool.lend(waiting());
            connected = true;
            std::optional<Watchdog::Guard> limit;
            limit.emplace(loan->limit(pool.options().timeout + waiting()));
            Row row;
            Transaction tx(**loan, protocol::begin(call), row);
            Decision decision = protocol::decision_of(row, call);
            limit.reset();
            begun = true;
            auto& guard = Driver::guard(tx);
            if (!decision.execute()) {
                guard.leave();
                return {std::move(decision), std::nullopt};
            }
            if (!call.derive) call.key = decision.claim.key;  // the server may have made it
            if (on_execute) on_execute(decision);
            guard.lend();
            Answer answer =
                detail::in_time(*loan, rules, [&] { return work(tx, std::as_const(decision)); });
            const auto verdict = rules.judge(answer);
            if (!detail::is_to_commit(verdict)) return {std::move(decision), std::move(answer)};
            limit.emplace(loan->limit(pool.options().timeout));
            detail::end_transactional(guard, decision.claim, answer, *verdict, rules);
            return {std::move(decision), std::move(answer)};
        } catch (const Refusal& refusal) {
            if (!begun || !detail::is_kept(refusal, rules)) throw;
            return detail::keep<Driver>(pool, std::move(call), rules, refusal.answer());
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
