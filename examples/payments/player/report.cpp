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

// A payment, its repeat at the other process, and the key used for something else; then a payment
// by way of the gateway.
constexpr char kCurlLines[] =
    R"(    pay() { curl -iw "\n" -H 'Authorization: Bearer sk_acme' \
                 -H 'Content-Type: application/json' "$@"; }
    pay $ONE/payments -H 'Idempotency-Key: "order-1"' \
        -d '{"amount":{"value":"12.50","currency":"EUR"},"customer":"CUS_1","card":"tok_visa"}'
    pay $TWO/payments -H 'Idempotency-Key: "order-1"' \
        -d '{"customer":"CUS_1","card":"tok_visa","amount":{"currency":"EUR","value":"12.50"}}'
    pay $ONE/payments -H 'Idempotency-Key: "order-1"' \
        -d '{"amount":{"value":"99.00","currency":"EUR"},"customer":"CUS_1","card":"tok_visa"}'
    pay $ONE/payments -d '{}'
    pay $TWO/transfers -H 'Idempotency-Key: "transfer-1"' \
        -d '{"amount":{"value":"80.00","currency":"EUR"}}'
    curl $GATEWAY/charges
)";

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
              << " requests answered, " << killed(board) << " processes and connections killed"
              << (terminal_ ? "" : "\n") << std::flush;
}

void print_table(std::ostream& out, const Board& board) {
    const Endings& e = board.common().endings;
    const Blows& b = board.common().blows;
    const auto text = [](int n) { return std::to_string(n); };
    row(out, "requests", board.lines(), "sent " + text(board.common().sent) + " times in all");
    row(out, "executed", e.executed + e.unheard + e.crashed,
        "answers never read: client hung up " + text(e.unheard) + ", was killed " +
            text(e.crashed));
    row(out, "replayed", e.replayed);
    row(out, "answered in progress", e.in_progress, "sent again after a pause");
    row(out, "refused", e.mismatched + e.bad_keys,
        "key used with another payload: " + text(e.mismatched) +
            ", no usable key: " + text(e.bad_keys));
    row(out, "without an answer", e.lost + e.unreached + e.impatient,
        "service killed: " + text(e.lost) + ", not there: " + text(e.unreached) +
            ", client did not wait: " + text(e.impatient));
    row(out, "failed with 5xx", e.failed, "the service lost its connection");
    row(out, "services killed", b.services_killed,
        "claims that died open: " + text(b.died_with_service));
    row(out, "backends terminated", b.backends_terminated,
        "claims that died open: " + text(b.died_with_backend));
    row(out, "clients killed", e.crashed);
    if (e.strange != 0) row(out, "answered otherwise", e.strange, "as nobody expects");
    out << std::endl;
}

void print_curl_lines(std::ostream& out, const std::vector<std::string>& services,
                      const std::string& gateway) {
    out << "\nStill running, until Ctrl-C. In another terminal:\n\n";
    out << "    ONE=" << services[0] << " TWO=" << services[1] << " GATEWAY=" << gateway << "\n\n"
        << kCurlLines << std::flush;
}

int killed(const Board& board) {
    const Common& common = board.common();
    return common.blows.services_killed + common.blows.backends_terminated +
           common.endings.crashed + common.endings.unheard + common.endings.impatient;
}

}  // namespace payments
