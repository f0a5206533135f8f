// Work that calls other services, in steps: a committed claim with a lease, which survives the
// process.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "contract.hpp"
#include "heartbeat.hpp"
#include "pool.hpp"
#include "protocol.hpp"

namespace idempotency {

// The library's rules for a call.
struct Rules {
    std::function<bool(int status)> keep = keep_by_default;
    std::size_t max_answer_bytes = contract::kDefaultMaxAnswerBytes;
    bool omit_large_answers = false;
    int attempts = 5;
    // Decides before `keep`, unless it says nothing.
    std::function<std::optional<Verdict>(const Answer&)> verdict;
    // For one run of the work; none: a minute, for leased work ten.
    std::optional<Milliseconds> handler_timeout;

    // None: the answer has a status that is not kept.
    std::optional<Verdict> judge(const Answer& answer) const {
        const auto said = verdict ? verdict(answer) : std::nullopt;
        return !said && keep(answer.status) ? Verdict::Keep : said;
    }
};

// Thrown by leased work that has certainly had no effect. The request is then executed again, even
// if the policy refuses to repeat attempts with an uncertain outcome.
class NothingHappened : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The answer cannot be stored, so the work is not done.
class AnswerTooLarge : public std::exception {
  public:
    const char* what() const noexcept override { return "the answer is too large to be kept"; }
};

// The work did not return within its limit, and was given up.
class HandlerLate : public std::exception {
  public:
    const char* what() const noexcept override { return "the handler did not return in time"; }
};

namespace detail {

// One statement, in a separate transaction on a separate connection.
template <typename Driver, typename Statement>
auto alone(Pool<Driver>& pool, Milliseconds longer, const Statement& statement) {
    const auto loan = pool.lend(longer);
    const auto limit = loan->limit(pool.options().timeout + longer);
    return statement([&](const char* sql, const Values& values) {
        return Driver::run_alone(**loan, sql, values);
    });
}

inline Statement completion(const ClaimId& claim, const Answer& answer, const Rules& rules) {
    if (answer.status == no_answer().status) return protocol::complete(claim);
    if (answer.body.size() <= rules.max_answer_bytes) {
        return protocol::complete(claim, answer.status, answer.body, answer.headers);
    }
    if (!rules.omit_large_answers) throw AnswerTooLarge();
    return protocol::complete(claim, answer.status, std::nullopt, {{"Idempotent-Body", "omitted"}});
}

// A handler's refusal is as final as an answer that it returns, if it is the caller's fault.
inline bool is_kept(const Refusal& refusal, const Rules& rules) {
    const int status = refusal.answer().status;
    return status >= 400 && status < 500 && rules.judge(refusal.answer()) == Verdict::Keep;
}

// Whether the work that has given such an answer commits.
inline bool is_to_commit(const std::optional<Verdict>& verdict) {
    return verdict == Verdict::Keep || verdict == Verdict::Unknown;
}

inline std::string reason_of(const Answer& answer) {
    return "answered " + std::to_string(answer.status);
}

// The statement that ends the claim of work that commits.
inline Statement ending(const ClaimId& claim, const Answer& answer, Verdict verdict,
                        const Rules& rules) {
    return verdict == Verdict::Unknown ? protocol::unknown(claim, reason_of(answer), std::nullopt)
                                       : completion(claim, answer, rules);
}

// Random, so that transactions that conflicted once do not conflict again.
inline void pause_before_attempt(int attempt) {
    thread_local std::minstd_rand random{std::random_device{}()};
    const int longest = std::min(5 << attempt, 200);
    std::this_thread::sleep_for(Milliseconds(std::uniform_int_distribution<>(0, longest)(random)));
}

}  // namespace detail

// The return value of a leased handler. Only ending the claim makes one, so a handler cannot forget
// to end it.
class [[nodiscard]] Ended {
  public:
    const Answer& answer() const noexcept { return answer_; }

  private:
    template <typename>
    friend class LeasedClaim;
    explicit Ended(Answer answer) : answer_(std::move(answer)) {}

    Answer answer_;
};

namespace detail {

template <typename Driver>
struct LeasedWork {
    LeasedWork(Pool<Driver>& its_pool, Decision decision, const Rules& its_rules,
               Clock::time_point sent, Milliseconds duration)
        : pool(its_pool), found(std::move(decision)), rules(its_rules), lease(sent, duration) {}

    Pool<Driver>& pool;
    Decision found;
    const Rules& rules;
    Lease lease;
    std::function<void()> on_lost;
    // Work that fails has certainly had no effect.
    bool rolls_back = false;
    std::atomic<bool> told{false};
    // While the claim is being ended, a beat that finds no claim does not count as a loss.
    std::atomic<bool> ending{false};
    std::atomic<bool> ended{false};
    // The work had its time, and its claim was ended without it.
    std::atomic<bool> late{false};

    void tell_lost() noexcept {
        if (ended || told.exchange(true) || !on_lost) return;
        try {
            on_lost();
        } catch (...) {  // a hook's exception is ignored
        }
    }

    struct Ending {
        explicit Ending(LeasedWork& its_work) : work(its_work) { work.ending = true; }
        ~Ending() { work.ending = false; }
        LeasedWork& work;
    };
};

// One statement that may be repeated. True if a claim that it does not find may have been ended by
// its first run, whose answer was lost.
template <typename Driver, typename Statement>
bool repeat(LeasedWork<Driver>& work, const Statement& statement) {
    bool in_doubt = false;
    for (int attempt = 1;; ++attempt) {
        try {
            alone(work.pool, Milliseconds(0), statement);
            return false;
        } catch (const std::exception& problem) {
            const auto failure = failure_of<Driver>(problem);
            if (in_doubt && failure.is_lost_claim()) return true;
            in_doubt = failure.is_connection();
            const bool again = in_doubt || failure.is_serialization();
            if (!again || attempt >= work.rules.attempts) throw;
        }
        pause_before_attempt(attempt);
    }
}

// Ends the claim by its token, so a repetition is harmless.
template <typename Driver, typename Statement>
void end(LeasedWork<Driver>& work, const Statement& statement) {
    const typename LeasedWork<Driver>::Ending ending(work);
    repeat(work, statement);
    work.ended = true;
}

// Retryable, never released.
template <typename Driver>
void give_up(LeasedWork<Driver>& work, const std::string& error, bool uncertain) {
    uncertain = uncertain && !work.rolls_back;
    end(work,
        [&](const protocol::Run& run) { protocol::fail(run, work.found.claim, error, uncertain); });
}

// The work does not return. It may still be ending its claim: then one of the two finds none.
template <typename Driver>
void give_up_late(LeasedWork<Driver>& work) {
    if (work.ended) return;
    try {
        give_up(work, HandlerLate().what(), /* uncertain */ true);
    } catch (const std::exception& problem) {
        if (failure_of<Driver>(problem).is_lost_claim()) return;
    }
    work.late = true;
}

// After work that threw. If this fails because the database is away, the lease expires by itself,
// with the same effect. Throws ClaimLost.
template <typename Driver>
void settle(LeasedWork<Driver>& work, const std::string& error, bool uncertain) {
    if (work.ended) return;
    bool lost = work.lease.lost();
    try {
        if (!lost) give_up(work, error, uncertain);
    } catch (const std::exception& problem) {
        lost = failure_of<Driver>(problem).is_lost_claim();
    }
    if (!lost) return;
    work.tell_lost();
    throw ClaimLost();
}

}  // namespace detail

// The right to work. Movable; each way to end it consumes it, and later use throws
// std::logic_error.
template <typename Driver>
class LeasedClaim {
  public:
    using Transaction = typename Driver::Transaction;
    using Step = std::function<nlohmann::json(Transaction&)>;  // returns the state to note
    using LastStep = std::function<Answer(Transaction&)>;

    explicit LeasedClaim(detail::LeasedWork<Driver>& work) : work_(&work) {}
    LeasedClaim(LeasedClaim&& other) noexcept : work_(std::exchange(other.work_, nullptr)) {}
    LeasedClaim& operator=(LeasedClaim&&) = delete;

    const std::string& key() const { return work().found.claim.key; }
    int attempt() const { return work().found.attempt; }
    // The recovery point and state of an earlier attempt; "" and null at the start.
    const std::string& recovery_point() const { return work().found.recovery_point; }
    const nlohmann::json& state() const { return work().found.state; }

    // Whether another worker may have the request by now, or the program is to end.
    bool lost() const { return work().lease.is_to_stop(); }
    // True as soon as that is so; false if it is not for that long.
    bool wait_for_loss(Milliseconds patience) const { return work().lease.wait_for_stop(patience); }
    // Call it before each effect outside the database. Throws ClaimLost. The claim can still be
    // lost a moment later, so the effect needs an idempotency key of its own.
    void ensure_held() const {
        if (lost()) throw ClaimLost();
    }

    // A step's effects in the database and its recovery point, in one transaction. A holder that
    // has lost its claim changes nothing. A COMMIT without an answer is a failure here: the record
    // tells the next attempt whether it took effect.
    void step(const std::string& recovery_point, const Step& effects) {
        nlohmann::json state;
        const auto note = [&](Transaction& tx, const auto& committing) {
            state = effects(tx);
            const auto last = protocol::checkpoint(work().found.claim, recovery_point, state);
            Driver::run(tx, last.text, last.values);
            committing();
            Driver::guard(tx).end();
        };
        in_transaction(note, /* again_after_commit */ false);
        work().found.recovery_point = recovery_point;
        work().found.state = std::move(state);
    }

    // A step without effects in the database: one statement, repeated where its answer is lost.
    void step(const std::string& recovery_point, nlohmann::json state) {
        ensure_held();
        const auto note = protocol::checkpoint(work().found.claim, recovery_point, state);
        const auto send = [&](const protocol::Run& run) { run(note.text, note.values); };
        if (detail::repeat(work(), send)) throw ClaimLost();
        work().found.recovery_point = recovery_point;
        work().found.state = std::move(state);
    }

    // The answer. An answer that is not kept fails the claim, since the work may have had effects.
    // A verdict may say otherwise.
    Ended finish(Answer answer) && {
        answer = storable(std::move(answer));
        const auto verdict = work().rules.judge(answer);
        if (verdict != Verdict::Keep) return std::move(*this).leave(verdict, std::move(answer));
        ensure_ours();
        const auto last = detail::completion(work().found.claim, answer, work().rules);
        detail::end(work(), [&](const protocol::Run& run) { run(last.text, last.values); });
        work_ = nullptr;
        return Ended(std::move(answer));
    }

    // There is no answer.
    Ended finish() && { return std::move(*this).finish(no_answer()); }

    // The last step's effects and the answer, in one transaction. It is repeated after a COMMIT
    // without an answer: if the claim had ended, the effects of the repetition are rolled back, and
    // the answer is that of the first time.
    Ended finish(const LastStep& effects) && {
        const typename detail::LeasedWork<Driver>::Ending ending(work());
        Answer answer;
        std::optional<Verdict> verdict;
        const auto end = [&](Transaction& tx, const auto& committing) {
            Answer made = storable(effects(tx));
            verdict = work().rules.judge(made);
            const bool commits = detail::is_to_commit(verdict);
            bool first = false;
            if (commits) {
                const auto& claim = work().found.claim;
                const auto last = detail::ending(claim, made, *verdict, work().rules);
                first = Driver::run(tx, last.text, last.values).at(0) == "t";
            }
            if (first || !commits) answer = std::move(made);
            if (!first) return;
            committing();
            Driver::guard(tx).end();
        };
        in_transaction(end, /* again_after_commit */ true);
        if (!detail::is_to_commit(verdict)) {
            return std::move(*this).leave(verdict, std::move(answer));
        }
        work().ended = true;
        work_ = nullptr;
        return Ended(std::move(answer));
    }

    // Gives the claim up. The work may have had its effect: if the policy has on_lease_expiry
    // 'unknown', repeats are refused. Else one is executed, from the last recovery point.
    Ended fail(const std::string& error, Answer answer) && {
        return std::move(*this).give_up(error, /* uncertain */ true, std::move(answer));
    }

    // Gives the claim up; a repeat is executed under any policy.
    Ended nothing_happened(const std::string& error, Answer answer) && {
        return std::move(*this).give_up(error, /* uncertain */ false, std::move(answer));
    }

    // It is not known whether the work had its effect: repeats are refused until an operator
    // decides. The reference is the other service's name for the attempt.
    Ended unknown(const std::string& error, const std::optional<std::string>& reference,
                  Answer answer) && {
        ensure_ours();
        const auto last = protocol::unknown(work().found.claim, error, reference);
        detail::end(work(), [&](const protocol::Run& run) { run(last.text, last.values); });
        work_ = nullptr;
        return Ended(storable(std::move(answer)));
    }

  private:
    // With an answer that is not stored.
    Ended leave(std::optional<Verdict> verdict, Answer answer) && {
        const auto error = detail::reason_of(answer);
        if (verdict == Verdict::Unknown) {
            return std::move(*this).unknown(error, std::nullopt, std::move(answer));
        }
        return std::move(*this).give_up(error, /* uncertain */ verdict != Verdict::Free,
                                        std::move(answer));
    }

    Ended give_up(const std::string& error, bool uncertain, Answer answer) && {
        ensure_ours();
        detail::give_up(work(), error, uncertain);
        work_ = nullptr;
        return Ended(storable(std::move(answer)));
    }

    // A claim can be ended by work that is to stop.
    void ensure_ours() const {
        if (work().lease.lost()) throw ClaimLost();
    }

    detail::LeasedWork<Driver>& work() const {
        if (work_ == nullptr) throw std::logic_error("the claim has ended");
        return *work_;
    }

    // The effects commit, and say so before. Repeats after a serialization failure or a lost
    // connection.
    template <typename Effects>
    void in_transaction(const Effects& effects, bool again_after_commit) {
        for (int attempt = 1;; ++attempt) {
            ensure_held();
            bool connected = false, committing = false;
            try {
                const auto loan = work().pool.lend();
                connected = true;
                Transaction tx(**loan);
                Driver::guard(tx).lend();
                std::optional<Watchdog::Guard> limit;
                return effects(tx, [&] {
                    limit.emplace(loan->limit(work().pool.options().timeout));
                    committing = true;
                });
            } catch (const std::exception& error) {
                const auto failure = failure_of<Driver>(error);
                const bool again =
                    failure.is_serialization() ||
                    (failure.is_connection() && connected && (again_after_commit || !committing));
                if (!again || attempt >= work().rules.attempts) throw;
            }
            detail::pause_before_attempt(attempt);
        }
    }

    detail::LeasedWork<Driver>* work_;
};

namespace detail {

// Of the exception that is being handled.
inline std::string reason_of_exception() try { throw; } catch (const std::exception& error) {
    return error.what();
} catch (...) {
    return "the handler failed";
}

// Runs the work under its claim, with heartbeats, at most until `limit`. Ends the claim of work
// that throws. Work is Ended(LeasedClaim<Driver>).
template <typename Driver, typename Work>
Answer run_held(LeasedWork<Driver>& state, Clock::time_point limit, const Work& work) try {
    const auto on_loss = [&] {
        if (!state.ending) state.tell_lost();
    };
    const Heartbeat<Driver> heartbeat(state.pool, state.lease, state.found.claim, on_loss, limit,
                                      [&] { give_up_late(state); });
    return work(LeasedClaim<Driver>(state)).answer();
} catch (const NothingHappened& failure) {
    if (state.late) throw HandlerLate();
    settle(state, failure.what(), /* uncertain */ false);
    throw;
} catch (const Refusal& refusal) {
    if (state.late) throw HandlerLate();
    if (state.ended || !is_kept(refusal, state.rules)) {
        settle(state, "the handler refused", /* uncertain */ true);
        throw;
    }
    return LeasedClaim<Driver>(state).finish(refusal.answer()).answer();
} catch (...) {
    if (state.late) throw HandlerLate();
    settle(state, reason_of_exception(), /* uncertain */ true);
    throw;
}

}  // namespace detail

// Runs the work if the key is free; else the decision gives the answer. Work is
// Ended(LeasedClaim<Driver>). An exception of the work is thrown again after the claim was failed
// retryably. Except for NothingHappened, such work counts as possibly having had effects. The
// answer of a Refusal with a 4xx is stored, like one that is returned.
template <typename Driver, typename Work>
std::pair<Decision, std::optional<Answer>> leased(
    Pool<Driver>& pool, Call call, const Rules& rules, const Work& work,
    const std::function<void(const Decision&)>& on_execute = {},
    const std::function<void(const Decision&)>& on_lost = {}) {
    const auto duration = call.lease.value_or(Milliseconds(30000));
    call.lease = duration;
    auto sent = Clock::now();
    Decision decision;
    for (int attempt = 1;;) {
        bool connected = false;
        try {
            // Committed separately, so that the claim outlives this process. If only its answer is
            // lost, the claim has no worker until its lease expires, and the retry below is told
            // so.
            decision = detail::alone(
                pool, call.wait.value_or(Milliseconds(0)), [&](const protocol::Run& run) {
                    connected = true;
                    sent = Clock::now();
                    const auto begin = protocol::begin(call);
                    return protocol::decision_of(run(begin.text, begin.values), call);
                });
            break;
        } catch (const std::exception& error) {
            const auto failure = failure_of<Driver>(error);
            if (call.request && failure.is_refused_by_jsonb()) {
                compare_as_bytes(call);
                continue;
            }
            const bool again = failure.is_serialization() || (failure.is_connection() && connected);
            if (!again || attempt >= rules.attempts) throw;
        }
        detail::pause_before_attempt(attempt++);
    }
    if (!decision.execute()) return {std::move(decision), std::nullopt};

    detail::LeasedWork<Driver> state(pool, decision, rules, sent, duration);
    if (on_lost) state.on_lost = [&] { on_lost(decision); };
    const auto longest =
        rules.handler_timeout.value_or(Milliseconds(contract::kDefaultLeasedHandlerTimeoutMs));
    const auto answer =
        detail::run_held(state, moment_after(longest), [&](LeasedClaim<Driver> claim) {
            if (on_execute) on_execute(decision);
            return work(std::move(claim));
        });
    return {std::move(decision), answer};
}

}  // namespace idempotency
