// What is seen while the demo runs, and the table at its end.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

#include "board.hpp"

namespace payments {

// On a terminal one line that is written over, elsewhere a line every second.
class Progress {
  public:
    Progress();
    void show(const Board& board);
    // Ends the line that was written over.
    void finish(const Board& board);

  private:
    using Clock = std::chrono::steady_clock;
    void print(const Board& board);

    bool terminal_;
    Clock::duration interval_;
    Clock::time_point start_;
    Clock::time_point next_;
};

// What to type to talk to the service that is left running.
void print_curl_lines(std::ostream& out, const std::vector<std::string>& services,
                      const std::string& gateway);

void print_table(std::ostream& out, const Board& board);

// Processes and connections that the demo has ended, on either side.
int killed(const Board& board);

}  // namespace payments
