#include "report.hpp"

#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <string>

namespace payments {
namespace {

using namespace std::chrono_literals;

void row(std::ostream& out, const char* what, int count, const std::string& remark = "") {
    out << std::left << std::setw(24) << what << std::right << std::setw(6) << count;
    if (!remark.empty()) out << "   " << remark;
    out << '\n';
}

}  // namespace

Progress::Progress()
    : terminal_(isatty(STDOUT_FILENO) != 0),
      interval_(terminal_ ? 100ms : 1s),
      start_(Clock::now()),
      next_(start_ + interval_) {}

void Progress::show(const Board& board) {
    if (Clock::now() < next_) return;
    next_ = Clock::now() + interval_;
    print(board);
}

void Progress::finish(const Board& board) {
    print(board);
    if (terminal_) std::cout << '\n';
    std::cout << std::endl;
}

void Progress::print(const Board& board) {
    const auto& common = board.common();
    const auto seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::cout << (terminal_ ? "\r" : "") << std::fixed << std::setprecision(1) << std::setw(5)
              << seconds << " s  " << common.answered << " of " << board.lines()
              << " requests answered, " << connections_killed(common.counters)
              << " connections killed" << (terminal_ ? "" : "\n") << std::flush;
}

void print_table(std::ostream& out, const Board& board) {
    const Counters& c = board.common().counters;
    const auto text = [](int n) { return std::to_string(n); };
    row(out, "requests", board.lines(), "sent " + text(c.sent) + " times in all");
    row(out, "executed", c.executed + c.unheard, "answer to COMMIT lost: " + text(c.unheard));
    row(out, "replayed", c.replayed);
    row(out, "answered in progress", c.in_progress, "sent again after a pause");
    row(out, "refused", c.mismatched + c.bad_keys,
        "key used with another payload: " + text(c.mismatched) +
            ", no usable key: " + text(c.bad_keys));
    row(out, "connections killed", connections_killed(c),
        "before COMMIT: " + text(c.terminated) + " backends terminated, " + text(c.crashed) +
            " clients killed; after COMMIT: " + text(c.unheard));
    if (c.disconnected != 0) row(out, "lost otherwise", c.disconnected, "not by the demo's doing");
    out << std::endl;
}

int connections_killed(const Counters& counters) {
    return counters.terminated + counters.crashed + counters.unheard;
}

}  // namespace payments
