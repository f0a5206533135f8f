// What is seen while the demo runs, and the table at its end.
#pragma once

#include <chrono>
#include <iosfwd>

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

void print_table(std::ostream& out, const Board& board);

// Connections that a fault of the demo cut.
int connections_killed(const Counters& counters);

}  // namespace payments
