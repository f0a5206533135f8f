// The worker processes, seen from their parent.
#pragma once

#include <sys/types.h>

#include <vector>

#include "board.hpp"
#include "faults.hpp"
#include "input.hpp"
#include "options.hpp"

namespace payments {

class Crew {
  public:
    // Starts the workers.
    Crew(const Options& options, const std::vector<Request>& requests, Board& board);
    // Tells the workers to stop and waits for them.
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    // One round: terminates the connections the workers ask for, replaces workers that were killed.
    // False when all have gone home.
    bool tend();
    // Whether a worker ended with an error, which it has printed.
    bool failed() const { return failed_; }

  private:
    void hire(std::size_t worker);
    void dismiss(std::size_t worker, int status);
    void serve_the_doomed();

    const Options& options_;
    const std::vector<Request>& requests_;
    Board& board_;
    Terminator terminator_;
    std::vector<pid_t> pids_;  // 0: has gone home
    bool failed_ = false;
};

}  // namespace payments
