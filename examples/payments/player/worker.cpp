#include "worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace payments {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTwinPatience = 100ms;  // all others may be waiting for this very line
constexpr int kUserPatience = 20;      // attempts
constexpr auto kGlance = 200us;        // between two looks at the board

// A payment takes milliseconds here, and Retry-After counts seconds: more than a moment of it would
// be spent with nothing to do. Some 30 seconds without an answer are too long.
constexpr client::RetryRules kRules{400, 5ms, 100ms, 20ms};

struct Stopped {};

// Each worker turns to another process of the service first.
std::vector<std::string> starting_at(std::vector<std::string> servers, std::size_t number) {
    const auto first = static_cast<std::ptrdiff_t>(number % servers.size());
    std::rotate(servers.begin(), servers.begin() + first, servers.end());
    return servers;
}

client::Request as_http(const Request& request) {
    client::Request http{request.method, request.path, {}, request.body};
    http.headers["authorization"] = "Bearer sk_" + request.tenant;
    if (request.field) http.headers["idempotency-key"] = *request.field;
    return http;
}

// What a repeat must carry as well: all but the mark of a repeat and what concerns the connection.
std::string lasting_headers(const client::Answer& answer) {
    std::string lines;
    for (const auto& [name, value] : answer.headers) {
        const bool passing =
            name == "idempotent-replayed" || name == "connection" || name == "keep-alive";
        if (!passing) lines += name + ": " + value + '\n';
    }
    return lines;
}

}  // namespace

Worker::Worker(const Options& options, std::vector<std::string> servers,
               const std::vector<Request>& requests, Board& board, std::size_t number)
    : options_(options),
      requests_(requests),
      board_(board),
      desk_(board.desk(number)),
      parent_(getppid()),
      wire_(board.common()),
      client_(starting_at(std::move(servers), number), wire_, kRules) {
    client_.observe([this](int, const client::Attempt&, auto pause) {
        if (pause && stopping()) throw Stopped{};
    });
}

void Worker::run() {
    try {
        // Not zero: a predecessor was killed with this line in hand.
        const int left_over = desk_.line;
        if (left_over != 0) play(requests_[static_cast<std::size_t>(left_over) - 1]);
        while (const Request* request = next_request()) play(*request);
    } catch (const Stopped&) {
        // The line stays unanswered, which the board shows.
    }
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
    if (board_.line(request.n).answered) return;
    meet_twin(request);
    wait_for_answer_to(request.after);
    if (!stopping()) send(request);
}

// The two clicks of a double click leave at the same moment, if another worker is free to take one.
void Worker::meet_twin(const Request& request) {
    board_.line(request.n).arrived = true;
    if (request.twin == 0) return;
    const auto deadline = Clock::now() + kTwinPatience;
    while (!board_.line(request.twin).arrived && Clock::now() < deadline) {
        std::this_thread::sleep_for(kGlance);
    }
}

void Worker::wait_for_answer_to(int line) {
    while (line != 0 && !board_.line(line).answered && !stopping()) {
        std::this_thread::sleep_for(kGlance);
    }
}

void Worker::send(const Request& request) {
    wire_.expect(plan_fault(options_.seed, request.n, options_.fault_percent),
                 board_.line(request.n), options_.without_idempotency && request.key);
    const client::Request http = as_http(request);
    client::Attempt last = client_.send(http);
    // Nobody but a user repeats a request that has no key.
    for (int i = 0; i < kUserPatience && !last.answer && !request.field; ++i) {
        last = client_.send(http);
    }
    if (!last.answer || client::worth_retrying(http, last)) {
        throw std::runtime_error("line " + std::to_string(request.n) + " gets no final answer");
    }
    remember(request, *last.answer);
}

void Worker::remember(const Request& request, const client::Answer& answer) {
    LineState& state = board_.line(request.n);
    state.answer.status = answer.status;
    state.answer.replayed = is_replay(answer);
    state.answer.headers.assign(lasting_headers(answer));
    state.answer.body.assign(answer.body);
    ++board_.common().answered;
    state.answered = true;
}

}  // namespace payments
