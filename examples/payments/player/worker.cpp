#include "worker.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace payments {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 30s;        // longest time that a line may stay without an answer
constexpr auto kTwinPatience = 100ms;  // all others may be waiting for this very line
constexpr auto kGlance = 200us;        // between two looks at the board

template <typename Duration>
void pause(Duration duration) {
    std::this_thread::sleep_for(duration);
}

}  // namespace

Worker::Worker(const Options& options, const std::vector<Request>& requests, Board& board,
               std::size_t number)
    : options_(options),
      requests_(requests),
      board_(board),
      desk_(board.desk(number)),
      counters_(board.common().counters),
      parent_(getppid()) {}

void Worker::run() {
    connect();
    // Not zero: a predecessor was killed with this line in hand.
    if (const int left_over = desk_.line) play(requests_[static_cast<std::size_t>(left_over) - 1]);
    while (const Request* request = next_request()) play(*request);
}

bool Worker::stopping() const {
    return board_.common().stop || getppid() != parent_;
}

const Request* Worker::next_request() {
    if (stopping()) return nullptr;
    const int n = board_.common().next_line++;
    if (n > board_.lines()) return nullptr;
    desk_.line = n;
    return &requests_[static_cast<std::size_t>(n) - 1];
}

void Worker::play(const Request& request) {
    meet_twin(request);
    wait_for_answer_to(request.after);
    const auto deadline = Clock::now() + kPatience;
    while (!stopping() && !board_.line(request.n).answered) {
        if (Clock::now() > deadline) {
            throw std::runtime_error("line " + std::to_string(request.n) + " gets no answer");
        }
        const Attempt result = attempt(request);
        if (result == Attempt::Cut) connect();
        if (result == Attempt::InProgress) pause(5ms);
    }
}

// The two clicks of a double click leave at the same moment, if another worker is free to take one.
void Worker::meet_twin(const Request& request) {
    board_.line(request.n).arrived = true;
    if (request.twin == 0) return;
    const auto deadline = Clock::now() + kTwinPatience;
    while (!board_.line(request.twin).arrived && Clock::now() < deadline) pause(kGlance);
}

void Worker::wait_for_answer_to(int line) {
    while (line != 0 && !board_.line(line).answered && !stopping()) pause(kGlance);
}

void Worker::connect() {
    session_.emplace(options_.database);
    doomed_ = false;
}

Worker::Attempt Worker::attempt(const Request& request) {
    ++counters_.sent;
    try {
        pqxx::work tx(session_->connection());
        return options_.without_idempotency ? execute(tx, request) : decide(tx, request);
    } catch (const pqxx::failure& failure) {
        return explain(failure, request);
    }
}

Worker::Attempt Worker::decide(pqxx::work& tx, const Request& request) {
    const Claim claim = begin_payment(tx, request);
    if (claim.outcome == "execute") return execute(tx, request);
    if (claim.outcome == "replay") return remember(request, claim.response, counters_.replayed);
    if (claim.outcome == "mismatch") {
        return remember(request, {kMismatch, "{}", ""}, counters_.mismatched);
    }
    if (claim.outcome != "in_progress") throw std::runtime_error("outcome " + claim.outcome);
    ++counters_.in_progress;
    return Attempt::InProgress;
}

Worker::Attempt Worker::execute(pqxx::work& tx, const Request& request) {
    const Charge charge = new_charge(request);
    FaultPlan plan = plan_fault(options_.seed, request.n, options_.fault_percent);
    if (board_.line(request.n).struck) plan.fault = Fault::None;

    strike(plan, Moment::Begun, request.n);
    pause(std::chrono::microseconds(working_time(options_.seed, request.n)));
    insert_charge(tx, request, charge);
    strike(plan, Moment::Charged, request.n);
    book_charge(tx, request);
    strike(plan, Moment::Booked, request.n);
    if (!options_.without_idempotency) complete_payment(tx, request, charge.response);
    strike(plan, Moment::Completed, request.n);
    if (plan.fault == Fault::Unheard) {
        board_.line(request.n).struck = true;
        return commit_unheard(tx);
    }
    tx.commit();
    return remember(request, charge.response, counters_.executed);
}

// The COMMIT leaves, but this side of the socket is deaf: the client will never know.
Worker::Attempt Worker::commit_unheard(pqxx::work& tx) {
    ++counters_.unheard;
    shutdown(session_->connection().sock(), SHUT_RD);
    try {
        tx.commit();
    } catch (const pqxx::failure&) {
        // As meant: the answer is lost.
    }
    return Attempt::Cut;
}

// A lost connection is the client's everyday life; a key that is none is the client's fault
// (SQLSTATE class 22). Everything else is the demo's, and ends it.
Worker::Attempt Worker::explain(const pqxx::failure& failure, const Request& request) {
    if (!session_->connection().is_open()) {
        ++(doomed_ ? counters_.terminated : counters_.disconnected);
        return Attempt::Cut;
    }
    const auto* error = dynamic_cast<const pqxx::sql_error*>(&failure);
    if (error == nullptr || error->sqlstate().compare(0, 2, "22") != 0) throw;
    return remember(request, {kBadRequest, "{}", ""}, counters_.bad_keys);
}

void Worker::strike(const FaultPlan& plan, Moment moment, int line) {
    const bool deadly = plan.fault == Fault::Terminated || plan.fault == Fault::Crashed;
    if (!deadly || plan.moment != moment) return;
    board_.line(line).struck = true;
    if (plan.fault == Fault::Terminated) return ask_for_termination();
    ++counters_.crashed;
    raise(SIGKILL);
}

// The next statement will find the connection gone, as it would any other day.
void Worker::ask_for_termination() {
    doomed_ = true;
    desk_.doomed_pid = session_->connection().backendpid();
    while (desk_.doomed_pid != 0 && !stopping()) pause(kGlance);
}

Worker::Attempt Worker::remember(const Request& request, const Response& response,
                                 std::atomic<int>& counter) {
    LineState& state = board_.line(request.n);
    state.answer.status = response.status;
    state.answer.headers.assign(response.headers);
    state.answer.body.assign(response.body);
    ++counter;
    ++board_.common().answered;
    state.answered = true;
    return Attempt::Answered;
}

}  // namespace payments
