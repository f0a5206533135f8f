// A thousand duplicates of one running request, on fifty connections, while it runs: one executes,
// and everybody else is told so at once. Nobody is chosen to execute: all ask at the same moment.

#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "contenders/business.hpp"
#include "contenders/lineup.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr int kConnections = 50;
constexpr int kDuplicates = 1000;
constexpr double kMostMillis = 5;

// One key's crowd: kDuplicates + 1 requests, of which one executes until all others are answered.
class Crowd {
  public:
    // Returns when everybody has been answered. Throws what any of them has met.
    void ask_all();

    const Histogram& answers() const { return answers_; }
    int executions() const { return executions_; }
    double seconds() const { return seconds_; }

  private:
    void live(Connection& sql);
    void ask(Connection& sql);
    void execute(Connection& sql);
    void note(Clock::duration latency);
    void fail();
    void pause_until(const std::atomic<int>& count, int wanted) const;

    const std::string key_ = random_key();
    std::atomic<int> ready_{0};
    std::atomic<int> asked_{0};
    std::atomic<int> answered_{0};
    std::atomic<int> executions_{0};
    std::atomic<int> failed_{0};
    std::mutex mutex_;
    Histogram answers_;
    std::exception_ptr error_;
    double seconds_ = 0;
};

void prepare(Connection& sql) {
    prepare_business(sql);
    sql.prepare("claim", "SELECT outcome FROM idem_begin($1, scope => 'bench')");
    sql.prepare("complete", "SELECT idem_complete($1, 201, $2::text, scope => 'bench')");
}

void Crowd::ask_all() {
    std::vector<std::thread> threads;
    Clock::time_point begun = Clock::now();
    for (int i = 0; i < kConnections; i++)
        threads.emplace_back([this, i] {
            try {
                Connection sql("idem_bench client " + std::to_string(i));
                prepare(sql);
                live(sql);
            } catch (...) {
                fail();
            }
        });
    for (std::thread& thread : threads) thread.join();
    seconds_ = std::chrono::duration<double>(Clock::now() - begun).count();
    if (error_) std::rethrow_exception(error_);
}

void Crowd::live(Connection& sql) {
    ready_++;
    pause_until(ready_, kConnections);
    while (asked_++ <= kDuplicates) ask(sql);
}

void Crowd::ask(Connection& sql) {
    Clock::time_point asked = Clock::now();
    std::string outcome = sql.round_trip({start(), {"claim", {key_}}}).back().front();
    Clock::duration latency = Clock::now() - asked;
    if (outcome == "execute") return execute(sql);
    expect(outcome, "in_progress");
    sql.ask(commit());
    note(latency);
}

void Crowd::execute(Connection& sql) {
    executions_++;
    expect(sql.ask(pay()), "1");
    pause_until(answered_, kDuplicates);
    expect(sql.ask({"complete", {key_, response_body()}}), "t");
    sql.ask(commit());
}

void Crowd::note(Clock::duration latency) {
    std::lock_guard<std::mutex> guard(mutex_);
    answers_.record(latency);
    answered_++;
}

void Crowd::fail() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_++;
}

void Crowd::pause_until(const std::atomic<int>& count, int wanted) const {
    while (count < wanted) {
        if (failed_ > 0) throw std::runtime_error("another connection has failed");
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

void check(const Crowd& crowd, Connection& admin) {
    if (crowd.executions() != 1 || admin.number("SELECT count(*) FROM bench.payment") != 1)
        throw std::runtime_error("not exactly one of the crowd has executed");
    if (crowd.answers().count() != kDuplicates)
        throw std::runtime_error("not every duplicate was answered");
}

}  // namespace

Findings hot_key(const Options& options) {
    Connection admin("idem_bench");
    Table table{{"round", "executed", "told in progress", "p50 ms", "p99 ms", "seconds in all"}};
    std::vector<double> medians;
    for (int i = 1; i <= options.rounds; i++) {
        say("hot_key: round " + std::to_string(i) + " of " + std::to_string(options.rounds));
        begin_afresh(admin);
        Crowd crowd;
        crowd.ask_all();
        check(crowd, admin);
        const Histogram& answers = crowd.answers();
        medians.push_back(answers.quantile(0.5));
        table.push_back({std::to_string(i), std::to_string(crowd.executions()),
                         std::to_string(answers.count()), fixed(answers.quantile(0.5), 3),
                         fixed(answers.quantile(0.99), 3), fixed(crowd.seconds(), 2)});
    }
    begin_afresh(admin);
    Figure figure = median_figure("hot key: median answer to 1,000 duplicates of a running request",
                                  medians, Bound::AtMost, kMostMillis);
    figure.unit = " ms";
    return {"hot_key", table, {figure}, {{"rounds", table}}, {}};
}

}  // namespace idem::bench
