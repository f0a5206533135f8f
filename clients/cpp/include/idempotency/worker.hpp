// A program that works off what no client sends again: webhooks, jobs, abandoned work.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "leased.hpp"
#include "listener.hpp"
#include "signals.hpp"

namespace idempotency {

// A record that is due, and the claim on it.
struct Due {
    std::string key, scope, principal, token;
    int attempt = 1;
    std::string operation, method, path;  // empty: none
    nlohmann::json request;               // null unless the policy has store_request
    std::string recovery_point;           // of an earlier attempt
    nlohmann::json state;
    std::string error;  // of the last attempt

    // Whether another worker may have the record by now, or Worker::abort was called.
    bool lost() const { return lease->is_to_stop(); }
    // True as soon as that is so; false if it is not for that long.
    bool wait_for_loss(Milliseconds patience) const { return lease->wait_for_stop(patience); }

    const Lease* lease = nullptr;
};

struct WorkerOptions {
    std::string scope;     // or the beginning of scopes, and *
    std::size_t size = 1;  // claims in work at the same time
    Milliseconds lease{contract::kDefaultLeaseMs};
    Milliseconds handler_timeout{contract::kDefaultLeasedHandlerTimeoutMs};
    Milliseconds poll{1000};  // pause between two questions for due records
    std::string channel;      // a NOTIFY there ends the pause; empty: none
    std::string holder;       // shown to operators
    // A handler's exception, with its record; or why no record can be claimed. Without a function
    // it is printed on the standard error.
    std::function<void(const std::exception&, const Due*)> on_error;
};

namespace detail {

// A row of idem_claim_due, as far as the claim needs it.
inline Decision granted_by(const Row& row) {
    Decision decision;
    decision.outcome = "execute";
    decision.claim = {row.at(0).value(), row.at(1).value(), row.at(2).value(), row.at(3)};
    decision.attempt = std::stoi(row.at(4).value());
    decision.recovery_point = row.at(9).value_or("");
    return decision;
}

inline Due due_of(const Row& row, const Lease& lease) {
    Due due;
    due.key = row.at(0).value();
    due.scope = row.at(1).value();
    due.principal = row.at(2).value();
    due.token = row.at(3).value();
    due.attempt = std::stoi(row.at(4).value());
    due.operation = row.at(5).value_or("");
    due.method = row.at(6).value_or("");
    due.path = row.at(7).value_or("");
    due.recovery_point = row.at(9).value_or("");
    due.error = row.at(11).value_or("");
    due.lease = &lease;
    return due;
}

// A number may be too large for it.
inline nlohmann::json readable(const Value& json) try {
    return protocol::json_of(json);
} catch (const nlohmann::json::exception& error) {
    throw NothingHappened(error.what());
}

}  // namespace detail

template <typename Driver>
class Worker {
  public:
    using Transaction = typename Driver::Transaction;
    using Claim = LeasedClaim<Driver>;

    // All effects of the handler go through the transaction, which also completes the record. The
    // handler is Answer(Transaction&, const Due&), or returns nothing. An exception rolls back.
    //
    // The pool must outlive the worker. These throw std::invalid_argument for bad options.
    template <typename Handler>
    static Worker transactional(Pool<Driver>& pool, WorkerOptions options, Handler handler) {
        const auto work = [handler](Claim claim, const Due& due) {
            return std::move(claim).finish([&](Transaction& tx) {
                auto answer = answer_of(handler, tx, due);
                if (due.lease->lost()) throw ClaimLost();
                return answer;
            });
        };
        return Worker(pool, std::move(options), work, /* rolls_back */ true);
    }

    // The handler has effects outside the database. It is Ended(Claim, const Due&).
    template <typename Handler>
    static Worker leased(Pool<Driver>& pool, WorkerOptions options, Handler handler) {
        return Worker(pool, std::move(options), std::move(handler), /* rolls_back */ false);
    }

    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Works until stop(). An outage of the database does not end it. If the first question for due
    // records is refused, that is a mistake: the exception comes out.
    void run() {
        const Crew crew(*this);
        auto pause = options_.poll;
        bool proven = false;
        while (const auto free = wait_for_free()) {
            try {
                const bool filled = claim(free) == free;
                proven = true;
                pause = options_.poll;
                if (!filled) rest(options_.poll);
            } catch (const std::exception& error) {
                if (!proven && failure_of<Driver>(error).is_mistake()) throw;
                tell(error, nullptr);
                rest(std::exchange(pause, longer(pause)));
            }
        }
    }

    // Works until one of these signals comes; a second one calls abort(). The signals are blocked
    // in this thread meanwhile. Threads that were started before may have to block them, too.
    void run_until(std::initializer_list<int> signals) {
        bool told = false;
        const OnSignals waiting(signals, [&] { std::exchange(told, true) ? abort() : stop(); });
        run();
    }

    // Claims no more. run() returns when the handlers that run have ended. From any thread; not
    // from a signal's handler.
    void stop() {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }

    // As stop(), and tells the handlers that run, as if their leases were lost.
    void abort() {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = aborting_ = true;
        for (Lease* lease : running_) lease->stop();
        changed_.notify_all();
    }

  private:
    using Handler = std::function<Ended(Claim, const Due&)>;

    // Claimed, and not yet in work.
    struct Granted {
        Row row;
        Clock::time_point sent;
    };

    Worker(Pool<Driver>& pool, WorkerOptions options, Handler handler, bool rolls_back)
        : pool_(pool),
          options_(std::move(options)),
          handler_(std::move(handler)),
          rolls_back_(rolls_back) {
        check(options_.size >= 1 && options_.size <= 1000, "size is from 1 to 1000");
        check(options_.size < pool_.options().size,
              "the pool needs a connection for each claim, and one more");
        check(options_.lease.count() > 0, "lease is not positive");
        check(options_.poll.count() > 0, "poll is not positive");
        check(options_.handler_timeout.count() > 0, "handler_timeout is not positive");
    }

    void check(bool good, const char* what) const {
        if (!good) throw std::invalid_argument(options_.scope + ": " + what);
    }

    // ---- claims ----

    // The threads of a run. At the end they finish their work.
    class Crew {
      public:
        explicit Crew(Worker& worker) : worker_(worker) {
            const auto& options = worker.options_;
            try {
                while (threads_.size() < options.size) {
                    threads_.push_back(thread_without_signals([&worker] { worker.work(); }));
                }
                if (options.channel.empty()) return;
                listener_.emplace(worker.pool_, options.channel, options.poll,
                                  [&worker] { worker.wake(); });
            } catch (...) {
                dismiss();
                throw;
            }
        }
        ~Crew() { dismiss(); }
        Crew(const Crew&) = delete;
        Crew& operator=(const Crew&) = delete;

      private:
        void dismiss() {
            {
                const std::lock_guard<std::mutex> lock(worker_.mutex_);
                worker_.stopping_ = worker_.dismissed_ = true;
                worker_.changed_.notify_all();
            }
            for (auto& thread : threads_) thread.join();
        }

        Worker& worker_;
        std::vector<std::thread> threads_;
        std::optional<Listener<Driver>> listener_;
    };

    // How many may be claimed; none: the end.
    std::size_t wait_for_free() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || claimed_ < options_.size; });
        woken_ = false;
        return stopping_ ? 0 : options_.size - claimed_;
    }

    std::size_t claim(std::size_t most) {
        const auto loan = pool_.lend();
        const auto limit = loan->limit(pool_.options().timeout);
        const auto sent = Clock::now();
        const auto due =
            protocol::due(options_.scope, most, options_.lease, unless_empty(options_.holder));
        auto rows = detail::rows_of(detail::execute(Driver::raw(**loan), due).get());
        const std::lock_guard<std::mutex> lock(mutex_);
        claimed_ += rows.size();
        for (auto& row : rows) granted_.push_back({std::move(row), sent});
        changed_.notify_all();
        return rows.size();
    }

    // With jitter, so that workers that began together do not stay together.
    void rest(Milliseconds pause) {
        thread_local std::minstd_rand random{std::random_device{}()};
        std::uniform_real_distribution<> factor(0.5, 1.5);
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, pause * factor(random), [this] { return stopping_ || woken_; });
    }

    void wake() {
        const std::lock_guard<std::mutex> lock(mutex_);
        woken_ = true;
        changed_.notify_all();
    }

    // ---- work ----

    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return dismissed_ || !granted_.empty(); });
            if (granted_.empty()) return;
            const Granted granted = std::move(granted_.front());
            granted_.pop_front();
            lock.unlock();
            work_off(granted);
            lock.lock();
            --claimed_;
            changed_.notify_all();
        }
    }

    void work_off(const Granted& granted) {
        detail::LeasedWork<Driver> state(pool_, detail::granted_by(granted.row), rules_,
                                         granted.sent, options_.lease);
        state.rolls_back = rolls_back_;
        const Running running(*this, state.lease);
        Due due = detail::due_of(granted.row, state.lease);
        try {
            detail::run_held(state, moment_after(options_.handler_timeout), [&](Claim claim) {
                due.request = detail::readable(granted.row.at(8));
                due.state = state.found.state = detail::readable(granted.row.at(10));
                return handler_(std::move(claim), std::as_const(due));
            });
        } catch (const std::exception& error) {
            tell(error, &due);
        } catch (...) {
            tell(std::runtime_error("the handler failed"), &due);
        }
    }

    // Work that abort() tells.
    class Running {
      public:
        Running(Worker& worker, Lease& lease) : worker_(worker), lease_(lease) {
            const std::lock_guard<std::mutex> lock(worker_.mutex_);
            worker_.running_.insert(&lease_);
            if (worker_.aborting_) lease_.stop();
        }
        ~Running() {
            const std::lock_guard<std::mutex> lock(worker_.mutex_);
            worker_.running_.erase(&lease_);
        }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;

      private:
        Worker& worker_;
        Lease& lease_;
    };

    template <typename Work>
    static Answer answer_of(const Work& handler, Transaction& tx, const Due& due) {
        if constexpr (std::is_void_v<std::invoke_result_t<Work, Transaction&, const Due&>>) {
            handler(tx, due);
            return no_answer();
        } else {
            return handler(tx, due);
        }
    }

    void tell(const std::exception& error, const Due* due) const noexcept try {
        if (options_.on_error) return options_.on_error(error, due);
        const auto of = due ? due->scope + " " + due->key : options_.scope;
        std::cerr << "error: " + of + ": " + error.what() + "\n";
    } catch (...) {  // a hook's exception is ignored
    }

    Pool<Driver>& pool_;
    const WorkerOptions options_;
    const Handler handler_;
    const bool rolls_back_;
    const Rules rules_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t claimed_ = 0;  // and not ended
    std::deque<Granted> granted_;
    std::set<Lease*> running_;
    bool stopping_ = false, aborting_ = false, woken_ = false;
    bool dismissed_ = false;  // nothing more is claimed
};

}  // namespace idempotency
