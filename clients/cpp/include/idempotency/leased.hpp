// Work that calls the outside, in steps: a committed claim with a lease, which survives the
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

#include "heartbeat.hpp"
#include "pool.hpp"
#include "protocol.hpp"

namespace idempotency {

// What the library has to be told beside the call itself.
struct Rules {
    std::function<bool(int status)> keep = keep_by_default;
    std::size_t max_answer_bytes = 1 << 20;
    bool omit_large_answers = false;
    int attempts = 5;
};

// The answer can't be kept, so the work is not done.
class AnswerTooLarge : public std::exception {
  public:
    const char* what() const noexcept override { return "the answer is too large to be kept"; }
};

namespace detail {

template <typename Driver>
auto run_in(typename Driver::Transaction& tx) {
    return [&tx](const char* sql, const Values& values) { return Driver::run(tx, sql, values); };
}

inline bool complete(const protocol::Run& run, const ClaimId& claim, const Answer& answer,
                     const Rules& rules) {
    if (answer.body.size() <= rules.max_answer_bytes) {
        return protocol::complete(run, claim, answer.status, answer.body, answer.headers);
    }
    if (!rules.omit_large_answers) throw AnswerTooLarge();
    return protocol::complete(run, claim, answer.status, std::nullopt,
                              {{"Idempotent-Body", "omitted"}});
}

// Random, so that those who have met once don't meet again.
inline void pause_before_attempt(int attempt) {
    thread_local std::minstd_rand random{std::random_device{}()};
    const int longest = std::min(5 << attempt, 200);
    std::this_thread::sleep_for(Milliseconds(std::uniform_int_distribution<>(0, longest)(random)));
}

}  // namespace detail

// What a handler of leased work returns: only ending the claim makes one, so it can't be forgotten.
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
    std::atomic<bool> ending{false};
    bool ended = false;
};

}  // namespace detail

// The right to work. It moves, and each way to end it takes it away: what is used after that throws
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
    // Where an attempt before this one came to, and what it noted there; "" and null at the start.
    const std::string& recovery_point() const { return work().found.recovery_point; }
    const nlohmann::json& state() const { return work().found.state; }

    // Whether somebody else may be working on the request by now.
    bool lost() const { return work().lease.lost(); }
    // True as soon as that is so; false if it is not for that long.
    bool wait_for_loss(Milliseconds patience) const { return work().lease.wait_for_loss(patience); }
    // To be called before each effect outside the database. Throws ClaimLost. The claim can still
    // be lost a moment later: so the effect carries a key of its own.
    void ensure_held() const {
        if (lost()) throw ClaimLost();
    }

    // A step's effects in the database and the recovery point behind it, in one transaction. A
    // holder that has lost its claim changes nothing.
    void step(const std::string& recovery_point, const Step& effects) {
        auto state = in_transaction([&](Transaction& tx) {
            auto noted = effects(tx);
            protocol::checkpoint(detail::run_in<Driver>(tx), work().found.claim, recovery_point,
                                 noted);
            return noted;
        });
        work().found.recovery_point = recovery_point;
        work().found.state = std::move(state);
    }

    // The answer; one that is not to be kept fails the claim retryably, since the work may have had
    // effects.
    Ended finish(Answer answer) && {
        return std::move(*this).finish([&](Transaction&) { return answer; });
    }

    // The last step's effects and the answer, in one transaction.
    Ended finish(const LastStep& effects) && {
        work().ending = true;
        std::optional<Answer> dropped;
        Answer kept = in_transaction(
            [&](Transaction& tx) {
                Answer answer = storable(effects(tx));
                if (!work().rules.keep(answer.status)) throw NotKept{answer};
                detail::complete(detail::run_in<Driver>(tx), work().found.claim, answer,
                                 work().rules);
                return answer;
            },
            dropped);
        if (dropped) {
            return std::move(*this).fail("answered " + std::to_string(dropped->status), *dropped);
        }
        take().ended = true;
        return Ended(std::move(kept));
    }

    // Gives the claim up, to be tried again from the last recovery point.
    Ended fail(const std::string& error, Answer answer) && {
        work().ending = true;
        in_transaction([&](Transaction& tx) {
            protocol::fail(detail::run_in<Driver>(tx), work().found.claim, error);
            return 0;
        });
        take().ended = true;
        return Ended(storable(std::move(answer)));
    }

  private:
    struct NotKept {
        Answer answer;
    };

    detail::LeasedWork<Driver>& work() const {
        if (work_ == nullptr) throw std::logic_error("the claim has ended");
        return *work_;
    }
    detail::LeasedWork<Driver>& take() {
        auto& taken = work();
        work_ = nullptr;
        return taken;
    }

    // Again where it fails to serialize. Whether a lost COMMIT has happened, the record says, to
    // the next attempt: so that is a failure here.
    template <typename Effects>
    auto in_transaction(const Effects& effects) {
        for (int attempt = 1;; ++attempt) {
            ensure_held();
            try {
                const auto loan = work().pool.lend();
                Transaction tx(**loan);
                auto result = effects(tx);
                const auto limit = loan->limit(work().pool.options().timeout);
                tx.commit();
                return result;
            } catch (const std::exception& error) {
                const bool again = failure_of<Driver>(error).is_serialization();
                if (!again || attempt >= work().rules.attempts) throw;
            }
            detail::pause_before_attempt(attempt);
        }
    }

    template <typename Effects>
    Answer in_transaction(const Effects& effects, std::optional<Answer>& dropped) try {
        return in_transaction(effects);
    } catch (const NotKept& not_kept) {
        dropped = not_kept.answer;
        return {};
    }

    detail::LeasedWork<Driver>* work_;
};

// Runs the work if the key is free; else the decision says what to answer. Work is
// Ended(LeasedClaim<Driver>). What it throws comes out again, when the claim has been failed
// retryably: it may have had effects, so it is never released.
template <typename Driver, typename Work>
std::pair<Decision, std::optional<Answer>> leased(
    Pool<Driver>& pool, Call call, const Rules& rules, const Work& work,
    const std::function<void(const Decision&)>& on_execute = {},
    const std::function<void(const Decision&)>& on_lost = {}) {
    const auto duration = call.lease.value_or(Milliseconds(30000));
    call.lease = duration;
    const auto sent = Clock::now();
    // Committed on its own, so that the claim outlives this process.
    Decision decision = [&] {
        const auto loan = pool.lend();
        const auto limit =
            loan->limit(pool.options().timeout + call.wait.value_or(Milliseconds(0)));
        typename Driver::Transaction tx(**loan);
        auto found = protocol::begin(detail::run_in<Driver>(tx), call);
        tx.commit();
        return found;
    }();
    if (!decision.execute()) return {std::move(decision), std::nullopt};

    detail::LeasedWork<Driver> state(pool, decision, rules, sent, duration);
    try {
        if (on_execute) on_execute(decision);
        const Heartbeat<Driver> heartbeat(pool, state.lease, decision.claim, [&] {
            if (on_lost && !state.ending) on_lost(decision);
        });
        Ended ended = work(LeasedClaim<Driver>(state));
        return {decision, ended.answer()};
    } catch (...) {
        // Where this fails too, the lease runs out by itself, and the next request goes on from the
        // last recovery point.
        if (!state.ended) {
            try {
                const auto loan = pool.lend();
                const auto limit = loan->limit(pool.options().timeout);
                typename Driver::Transaction tx(**loan);
                protocol::fail(detail::run_in<Driver>(tx), decision.claim, "the handler failed");
                tx.commit();
            } catch (const std::exception&) {
            }
        }
        throw;
    }
}

}  // namespace idempotency
