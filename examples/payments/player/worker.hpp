// One worker process: takes lines from the board and sends each until it has an answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "board.hpp"
#include "faults.hpp"
#include "options.hpp"
#include "session.hpp"

namespace payments {

class Worker {
  public:
    Worker(const Options& options, const std::vector<Request>& requests, Board& board,
           std::size_t number);
    // Returns when no line is left or the board says stop. Throws on what no client could retry.
    void run();

  private:
    // What a client knows after sending a request.
    enum class Attempt { Answered, InProgress, Cut };

    bool stopping() const;
    const Request* next_request();
    void play(const Request& request);
    void meet_twin(const Request& request);
    void wait_for_answer_to(int line);
    void connect();

    Attempt attempt(const Request& request);
    Attempt decide(pqxx::work& tx, const Request& request);
    Attempt execute(pqxx::work& tx, const Request& request);
    Attempt commit_unheard(pqxx::work& tx);
    Attempt explain(const pqxx::failure& failure, const Request& request);
    void strike(const FaultPlan& plan, Moment moment, int line);
    void ask_for_termination();
    Attempt remember(const Request& request, const Response& response, std::atomic<int>& counter);

    const Options& options_;
    const std::vector<Request>& requests_;
    Board& board_;
    Desk& desk_;
    Counters& counters_;
    pid_t parent_;
    bool doomed_ = false;  // the current connection is being terminated at our own wish
    std::optional<Session> session_;
};

}  // namespace payments
