// The client processes, seen from their parent.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "board.hpp"
#include "input.hpp"
#include "options.hpp"

namespace payments {

class Crew {
  public:
    // Starts the workers, who know the service by these URLs.
    Crew(const Options& options, std::vector<std::string> servers,
         const std::vector<Request>& requests, Board& board);
    // Tells the workers to stop and waits for them.
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    // One round: replaces workers that were killed. False when all have gone home.
    bool tend();
    // Whether a worker ended with an error, which it has printed.
    bool failed() const { return failed_; }

  private:
    void hire(std::size_t worker);
    void dismiss(std::size_t worker, int status);

    const Options& options_;
    std::vector<std::string> servers_;
    const std::vector<Request>& requests_;
    Board& board_;
    std::vector<pid_t> pids_;  // 0: has gone home
    bool failed_ = false;
};

}  // namespace payments
