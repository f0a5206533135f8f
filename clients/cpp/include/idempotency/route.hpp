// Gives a handler the behaviour of the IETF draft "The Idempotency-Key HTTP Header Field", with one
// line for each route. No HTTP library is needed: an adapter reads the head of a request, asks
// `admit`, reads the body up to `max_request_bytes`, and sends the result of `answer`.
#pragma once

#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract.hpp"
#include "form.hpp"
#include "http.hpp"
#include "leased.hpp"
#include "problem.hpp"
#include "transactionally.hpp"

namespace idempotency {

enum class MissingKey {
    Refuse,    // 400
    Pass,      // run unprotected, at the client's choice
    Generate,  // run under a new key, and name it in the answer
    Derive,    // the server derives the key from method, target and body
};

// The argument of hooks.
struct Event {
    std::string scope;
    std::string key;
    int attempt = 0;
    std::string outcome;
};

using Hook = std::function<void(const Event&)>;

struct Options {
    std::string scope;  // the operation, as policies and statistics know it: "POST /payments"
    // The client that a request comes from, by its head; none is answered 401. Required.
    std::function<std::optional<std::string>(const Request&)> principal;
    MissingKey missing_key = MissingKey::Refuse;
    // For Derive: when the server forgets such a key, whatever the policy retains.
    Milliseconds window{std::chrono::hours(24)};
    std::vector<std::string> exclude;  // fields that may differ in repeats of a request
    std::function<std::string(const Request&)> fingerprint;  // bytes, instead of target and body
    std::optional<Milliseconds> ttl;  // how long answers are replayed; else the policy's
    Milliseconds lease{30000};        // leased routes: takeover after this long without a beat
    Milliseconds wait{0};             // for a running duplicate; 0: answered at once
    std::function<bool(int status)> keep = keep_by_default;
    // Decides about an answer before `keep`; none leaves the decision to it.
    std::function<std::optional<Verdict>(const Answer&)> verdict;
    std::optional<Milliseconds> handler_timeout;  // for one run; none: 1 min, leased 10 min
    std::map<std::string, int> statuses;  // by outcome: {"in_progress", 425}, {"unavailable", 500}
    std::string key_header = "Idempotency-Key";
    std::string replay_header = "Idempotent-Replayed";
    bool echo_key = false;
    std::size_t max_request_bytes = contract::kDefaultMaxRequestBytes;
    std::size_t max_answer_bytes = contract::kDefaultMaxAnswerBytes;
    bool omit_large_answers = false;
    int attempts = 5;
    bool unprotected_without_database = false;  // without protection then; plain handlers only
    std::vector<std::string> methods = {"POST", "PATCH"};  // others pass
    std::string holder;                                    // shown to operators
    Hook on_execute, on_replay, on_refusal, on_lease_lost;
};

// The second argument of handlers.
struct Exchange {
    const Request& request;
    std::string principal;
    std::string key;  // empty: unprotected
    int attempt = 1;
    // When this run is given up. A handler that waits for something should not wait longer.
    Clock::time_point deadline = Clock::time_point::max();
};

// A route, as adapters use it.
struct Route {
    std::function<std::optional<std::string>(const Request& head)> principal;
    std::size_t max_request_bytes = 0;
    std::function<Answer(const Request&, const std::string& principal)> answer;
    // Whether `answer` refuses it whatever the body: the body need not be read then.
    std::function<bool(const Request& head)> refuses = nullptr;
};

template <typename Driver>
class Idempotent {
  public:
    using Transaction = typename Driver::Transaction;
    // All of its effects go through the transaction, which also holds the claim and the answer.
    using TransactionHandler = std::function<Answer(Transaction&, const Exchange&)>;
    // Has effects outside the database; works in steps.
    using LeasedHandler = std::function<Ended(LeasedClaim<Driver>, const Exchange&)>;
    // Needs no database: the transaction is nullptr if there is none.
    using PlainHandler = std::function<Answer(Transaction*, const Exchange&)>;

    // The pool must outlive the routes.
    explicit Idempotent(Pool<Driver>& pool) : pool_(pool) {}

    // These throw std::invalid_argument for options that contradict the kind of handler.
    Route transactional(Options options, TransactionHandler handler) const {
        check(options, !options.unprotected_without_database,
              "this handler can't do without the database");
        return route(
            std::make_shared<Transactional>(pool_, std::move(options), std::move(handler)));
    }

    Route plain(Options options, PlainHandler handler) const {
        return route(std::make_shared<Plain>(pool_, std::move(options), std::move(handler)));
    }

    Route leased(Options options, LeasedHandler handler) const {
        check(options, !options.unprotected_without_database,
              "this handler can't do without the database");
        check(options, options.missing_key != MissingKey::Pass, "leased work needs a key");
        return route(std::make_shared<Leased>(pool_, std::move(options), std::move(handler)));
    }

  private:
    static void check(const Options& options, bool good, const char* what) {
        if (!good) throw std::invalid_argument(options.scope + ": " + what);
    }

    // The steps of a request, shared by all kinds of route.
    class Course {
      public:
        Course(Pool<Driver>& pool, Options options)
            : pool_(pool), options_(std::move(options)), rules_{options_.keep,
                                                                options_.max_answer_bytes,
                                                                options_.omit_large_answers,
                                                                options_.attempts,
                                                                options_.verdict,
                                                                options_.handler_timeout} {
            check(options_, static_cast<bool>(options_.principal), "who is the principal?");
            check(options_, static_cast<bool>(options_.keep), "keep is not a function");
            check(options_,
                  is_field_name(options_.key_header) && is_field_name(options_.replay_header),
                  "the name of a header field");
            check(options_, options_.attempts >= 1, "attempts is at least 1");
            check(options_, options_.wait.count() >= 0, "wait is negative");
            check(options_, !options_.handler_timeout || options_.handler_timeout->count() > 0,
                  "handler_timeout is not positive");
            check(options_, options_.lease.count() > 0, "lease is not positive");
            check(options_, options_.window.count() > 0, "window is not positive");
            check(options_, !options_.ttl || options_.ttl->count() > 0, "ttl is not positive");
            for (const auto& [word, status] : options_.statuses) {
                check(options_, is_word(word), "statuses has a word that is no outcome");
                check(options_, status >= 400 && status <= 599, "statuses has no status of errors");
            }
        }
        virtual ~Course() = default;

        const Options& options() const { return options_; }

        bool refuses(const Request& head) const {
            const auto kind = key_of(head.headers, options_.key_header).kind;
            const bool missing = kind == KeyField::Missing;
            return is_protected(head.method) &&
                   (kind == KeyField::Bad ||
                    (missing && options_.missing_key == MissingKey::Refuse));
        }

        Answer answer(const Request& request, const std::string& principal) {
            Exchange exchange{request, principal, "", 1};
            bool invented = false;
            const KeyField field = key_of(request.headers, options_.key_header);
            exchange.key = field.key;
            Answer result = guarded([&] { return decide(exchange, field, invented); }, exchange);
            if (!exchange.key.empty() && (options_.echo_key || invented)) {
                set(result.headers, options_.key_header, to_key_field(exchange.key));
            }
            return result;
        }

      protected:
        using Outcome = std::pair<Decision, std::optional<Answer>>;

        // Claim, work and end. The key of the exchange is empty if one is to be generated.
        virtual Outcome claimed(Call call, Exchange& exchange) = 0;
        virtual Answer unprotected(Exchange& exchange) = 0;
        // The answer to a failure without one of its own.
        virtual Answer failed() const = 0;

        static void call_hook(const Hook& hook, const Event& event) noexcept try {
            if (hook) hook(event);
        } catch (...) {  // a hook's exception does not fail the request
        }

        // The exchange of a run that begins now.
        Exchange& begun(Exchange& exchange, int longest_ms) const {
            const auto longest = options_.handler_timeout.value_or(Milliseconds(longest_ms));
            exchange.deadline = moment_after(longest);
            return exchange;
        }

        std::function<void(const Decision&)> execute_hook(Exchange& exchange) {
            return [this, &exchange](const Decision& decision) {
                exchange.key = decision.claim.key;
                exchange.attempt = decision.attempt;
                call_hook(options_.on_execute, event(decision));
            };
        }

        static Event event(const Decision& decision) {
            return {decision.claim.scope, decision.claim.key, decision.attempt, decision.outcome};
        }

        Pool<Driver>& pool_;
        const Options options_;
        const Rules rules_;

      private:
        template <typename Work>
        Answer guarded(const Work& work, Exchange& exchange) {
            try {
                return work();
            } catch (const Refusal& refusal) {
                return refusal.answer();
            } catch (const HandlerLate& failure) {
                report(failure, {});
                return local_problem("handler_late");
            } catch (const AnswerTooLarge&) {
                return answer_too_large();
            } catch (const NothingHappened& failure) {
                report(failure, {});
                return rolled_back();
            } catch (const std::exception& error) {
                const auto failure = failure_of<Driver>(error);
                if (failure.is_lost_claim()) return refused(exchange, "in_progress", claim_lost());
                if (failure.is_connection() || failure.is_passing()) {
                    return refused(exchange, "unavailable", unavailable());
                }
                report(error, failure);
            } catch (...) {
                std::cerr << "error: not a standard exception\n";
            }
            return failed();
        }

        static bool is_word(const std::string& word) {
            const auto same = [&](const contract::Problem& each) { return word == each.word; };
            return std::any_of(std::begin(contract::kProblems), std::end(contract::kProblems),
                               same);
        }

        // Only the number of a database error: its message may quote a key or a body.
        static void report(const std::exception& error, const Failure& failure) {
            const auto what = failure.kind == Failure::Other ? std::string(error.what())
                                                             : "SQLSTATE " + failure.sqlstate;
            std::cerr << "error: " + what + "\n";
        }

        Answer decide(Exchange& exchange, const KeyField& field, bool& invented) {
            if (!is_protected(exchange.request.method)) {
                exchange.key.clear();
                return unprotected(exchange);
            }
            if (field.kind == KeyField::Bad) return refused(exchange, "bad_key");
            if (field.kind == KeyField::Missing) {
                if (options_.missing_key == MissingKey::Refuse) {
                    return refused(exchange, "missing_key");
                }
                if (options_.missing_key == MissingKey::Pass) return unprotected(exchange);
                invented = true;
            }
            return with_key(exchange);
        }

        bool is_protected(const std::string& method) const {
            const auto& methods = options_.methods;
            return std::find(methods.begin(), methods.end(), method) != methods.end();
        }

        Answer with_key(Exchange& exchange) try {
            Call call = call_of(exchange);
            if (exchange.key.empty() && options_.missing_key == MissingKey::Derive) {
                call.derive = options_.window;
                call.ttl.reset();
            }
            auto [decision, answered] = claimed(std::move(call), exchange);
            exchange.key = decision.claim.key;
            return answered ? *answered : told(decision, exchange);
        } catch (const std::exception& error) {
            const auto failure = failure_of<Driver>(error);
            if (exchange.attempt == 0 && failure.is_bad_json()) return bad_json();
            if (exchange.attempt == 0 && failure.is_too_large()) {
                return too_large("The body is too deep or too large to be recognised again.");
            }
            throw;
        }

        Call call_of(Exchange& exchange) {
            const auto& request = exchange.request;
            Call call;
            if (!exchange.key.empty()) call.key = exchange.key;
            call.method = request.method;
            call.target = request.target;
            call.exclude = options_.exclude;
            call.scope = options_.scope;
            call.principal = exchange.principal;
            call.ttl = options_.ttl;
            if (options_.wait.count() > 0) call.wait = options_.wait;
            if (!options_.holder.empty()) call.holder = options_.holder;
            identify(call, request);
            exchange.attempt = 0;  // the work has not begun
            return call;
        }

        // The server parses JSON itself. This only checks for bodies that could harm it or the
        // connection.
        void identify(Call& call, const Request& request) {
            const auto type = media_type(request.headers);
            call.media_type = type;
            if (options_.fingerprint) {
                call.digest = sha256(options_.fingerprint(request));
            } else if (!is_json(type) || request.body.empty()) {
                call.digest =
                    digest_of(request.method, request.target, request.headers, request.body);
            } else if (!is_utf8(request.body)) {
                throw Refusal(bad_json());
            } else if (json_depth(request.body) > kDeepest) {
                throw Refusal(too_large("The body is nested too deeply."));
            } else {
                call.request = request.body;
            }
        }

        Answer told(const Decision& decision, Exchange& exchange) {
            if (decision.outcome == "replay") return replay(decision);
            call_hook(options_.on_refusal, event(decision));
            return document(decision.outcome, decision.retry_after, exchange);
        }

        Answer replay(const Decision& decision) {
            call_hook(options_.on_replay, event(decision));
            Answer answer;
            if (decision.status == "failed" && !decision.status_code) {
                answer = document_of("failed");
            } else {
                answer = {decision.status_code.value_or(200), fields_of(decision.headers),
                          decision.body};
                if (decision.body_omitted) set(answer.headers, "Idempotent-Body", "omitted");
            }
            return with(std::move(answer), options_.replay_header, "true");
        }

        Answer refused(const Exchange& exchange, const std::string& word) {
            call_hook(options_.on_refusal, {options_.scope, exchange.key, exchange.attempt, word});
            return document(word, std::nullopt, exchange);
        }

        Answer refused(const Exchange& exchange, const std::string& word, Answer answer) {
            call_hook(options_.on_refusal, {options_.scope, exchange.key, exchange.attempt, word});
            return with_status(std::move(answer), word);
        }

        Answer with_status(Answer answer, const std::string& word) const {
            const auto mapped = options_.statuses.find(word);
            if (mapped == options_.statuses.end()) return answer;
            answer.status = mapped->second;
            auto document = nlohmann::json::parse(answer.body, nullptr, false);
            if (!document.is_object()) return answer;
            document["status"] = mapped->second;
            answer.body = document.dump();
            return answer;
        }

        // Retry-After, if repeating helps.
        Answer document(const std::string& word, std::optional<double> retry_after,
                        const Exchange&) {
            Answer answer = document_of(word);
            const bool later = retry_after || word == "in_progress" || word == "retry_later";
            if (!later) return answer;
            const auto seconds = std::max(1L, std::lround(std::ceil(retry_after.value_or(1.0))));
            auto json = nlohmann::json::parse(answer.body);
            json["retry_after"] = seconds;
            answer.body = json.dump();
            return with(std::move(answer), "Retry-After", std::to_string(seconds));
        }

        // Documents never change, so each is requested once.
        Answer document_of(const std::string& word) {
            if (const auto known = known_document(word)) return *known;
            const auto asked = asked_for(word);
            if (!asked) return with_status(local_problem(word), word);
            const std::lock_guard<std::mutex> lock(mutex_);
            return documents_.emplace(word, with_status(problem(*asked), word)).first->second;
        }

        std::optional<Answer> known_document(const std::string& word) {
            const std::lock_guard<std::mutex> lock(mutex_);
            const auto known = documents_.find(word);
            return known == documents_.end() ? std::nullopt : std::make_optional(known->second);
        }

        // None if the database is away and the document is one that must work without it.
        std::optional<nlohmann::json> asked_for(const std::string& word) try {
            return detail::alone(pool_, Milliseconds(0), [&](const protocol::Run& run) {
                return protocol::problem(run, word);
            });
        } catch (const std::exception& error) {
            const bool is_needed = word == "missing_key" || word == "bad_key";
            if (!is_needed || !failure_of<Driver>(error).is_connection()) throw;
            return std::nullopt;
        }

        static constexpr std::size_t kDeepest = 1000;

        std::mutex mutex_;
        std::map<std::string, Answer> documents_;
    };

    class Transactional : public Course {
      public:
        Transactional(Pool<Driver>& pool, Options options, TransactionHandler handler)
            : Course(pool, std::move(options)), handler_(std::move(handler)) {}

      protected:
        typename Course::Outcome claimed(Call call, Exchange& exchange) override {
            return transactionally(
                this->pool_, std::move(call), this->rules_,
                [&](Transaction& tx, const Decision&) { return run(tx, exchange); },
                this->execute_hook(exchange));
        }

        Answer unprotected(Exchange& exchange) override {
            const auto loan = this->pool_.lend();
            Transaction tx(**loan);
            auto& guard = Driver::guard(tx);
            guard.lend();
            auto answer = detail::in_time(*loan, this->rules_, [&] { return run(tx, exchange); });
            if (!detail::is_to_commit(this->rules_.judge(answer))) return answer;
            const auto limit = loan->limit(this->pool_.options().timeout);
            guard.end();
            return answer;
        }

        Answer failed() const override { return rolled_back(); }

      private:
        Answer run(Transaction& tx, Exchange& exchange) const {
            return handler_(tx, this->begun(exchange, contract::kDefaultHandlerTimeoutMs));
        }

        const TransactionHandler handler_;
    };

    // A transaction around a handler that needs no database. If the route allows it, the answer is
    // sent even when the database fails: it is then not protected.
    class Plain : public Course {
      public:
        Plain(Pool<Driver>& pool, Options options, PlainHandler handler)
            : Course(pool, std::move(options)), handler_(std::move(handler)) {}

      protected:
        typename Course::Outcome claimed(Call call, Exchange& exchange) override {
            std::optional<Answer> answered;
            const auto work = [&](Transaction& tx, const Decision&) {
                answered = handler_(&tx, this->begun(exchange, contract::kDefaultHandlerTimeoutMs));
                return *answered;
            };
            try {
                return transactionally(this->pool_, std::move(call), this->rules_, work,
                                       this->execute_hook(exchange));
            } catch (const std::exception& error) {
                if (!this->options_.unprotected_without_database) throw;
                if (!failure_of<Driver>(error).is_connection()) throw;
            }
            Decision none;
            none.claim.key = exchange.key;
            if (!answered) answered = handler_(nullptr, exchange);
            return {none, answered};
        }

        Answer unprotected(Exchange& exchange) override { return handler_(nullptr, exchange); }
        Answer failed() const override { return rolled_back(); }

      private:
        const PlainHandler handler_;
    };

    class Leased : public Course {
      public:
        Leased(Pool<Driver>& pool, Options options, LeasedHandler handler)
            : Course(pool, std::move(options)), handler_(std::move(handler)) {}

      protected:
        typename Course::Outcome claimed(Call call, Exchange& exchange) override {
            call.lease = this->options_.lease;
            return idempotency::leased(
                this->pool_, std::move(call), this->rules_,
                [&](LeasedClaim<Driver> claim) {
                    return handler_(
                        std::move(claim),
                        this->begun(exchange, contract::kDefaultLeasedHandlerTimeoutMs));
                },
                this->execute_hook(exchange),
                [&](const Decision& decision) {
                    Course::call_hook(this->options_.on_lease_lost, Course::event(decision));
                });
        }

        Answer unprotected(Exchange&) override {
            throw Refusal(problem(405, "/problems/method-not-allowed", "Method not allowed",
                                  "This operation needs POST or PATCH."));
        }
        Answer failed() const override { return half_done(); }

      private:
        const LeasedHandler handler_;
    };

    static Route route(std::shared_ptr<Course> course) {
        const auto& options = course->options();
        return {options.principal, options.max_request_bytes,
                [course](const Request& request, const std::string& principal) {
                    return course->answer(request, principal);
                },
                [course](const Request& head) { return course->refuses(head); }};
    }

    Pool<Driver>& pool_;
};

}  // namespace idempotency
