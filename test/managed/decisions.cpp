// Prints cases of the decision of src/core/decision.hpp and the reason of each, one per line, for
// test/managed/alone. Times are microseconds from now; "-" is null.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/decision.hpp"

using namespace idem::core;

namespace {

constexpr std::int64_t kNow = 1'000'000'000;
// Before, at and after now.
constexpr int kMoments[] = {-5, 0, 5};

struct Case {
    Known known;
    Terms terms;
    bool has_lease;
    int first_sent;  // 99: null
};

std::string flag(bool value) {
    return value ? "t" : "f";
}

std::string offset(std::int64_t moment) {
    return std::to_string(moment - kNow);
}

void print(const Case& one) {
    const Known& k = one.known;
    Terms terms = one.terms;
    if (one.first_sent != 99) terms.first_sent = kNow + one.first_sent;
    const Decision decision = decide(&k, terms);
    const std::string line =
        std::string(1, static_cast<char>(k.status)) + ' ' + std::to_string(k.attempt) + ' ' +
        (one.has_lease ? offset(k.lease_until) : "-") + ' ' +
        (k.status == Status::Retryable ? offset(k.next_attempt_at) : "-") + ' ' +
        offset(k.expires_at) + ' ' + offset(k.retained_until) + ' ' + offset(k.claimed_at) + ' ' +
        flag(k.holder_gone) + ' ' + flag(k.released_by_operator) + ' ' +
        static_cast<char>(k.if_silent) + ' ' + flag(k.derived) + ' ' + flag(k.same_fingerprint) +
        ' ' + std::to_string(terms.memory) + ' ' +
        (one.first_sent == 99 ? "-" : std::to_string(one.first_sent)) + ' ' +
        std::to_string(terms.max_attempts) + ' ' +
        flag(terms.on_lease_expiry == OnLeaseExpiry::Unknown) + ' ' +
        std::string(entry_of(decision.reason).word);
    std::puts(line.c_str());
}

template <typename T, std::size_t n>
T one_of(const T (&values)[n]) {
    return values[static_cast<std::size_t>(std::rand()) % n];
}

}  // namespace

// The same cases each time: more than there are rows in the table, by far.
int main() {
    std::srand(1);
    constexpr Status kAll[] = {Status::InProgress, Status::InProgress, Status::Completed,
                               Status::Failed,     Status::Retryable,  Status::Exhausted,
                               Status::Unknown};
    constexpr IfSilent kSilent[] = {IfSilent::Takeover, IfSilent::Unknown, IfSilent::Exhausted};
    constexpr bool kBoth[] = {false, true};
    constexpr int kSent[] = {99, 99, -20, -10, -5, 0};
    for (int i = 0; i < 120000; i++) {
        Case one{};
        Known& k = one.known;
        k.status = one_of(kAll);
        one.has_lease =
            k.status == Status::InProgress || (k.status == Status::Exhausted && one_of(kBoth));
        k.attempt = one_of({1, 2, 3});
        k.lease_until = one.has_lease ? kNow + one_of(kMoments) : 0;
        k.next_attempt_at = k.status == Status::Retryable ? kNow + one_of(kMoments) : 0;
        k.expires_at = kNow + one_of(kMoments);
        k.retained_until = k.expires_at + one_of({0, 5});
        k.claimed_at = kNow + one_of({-20, -10, -5});
        k.holder_gone = k.status == Status::InProgress && one_of(kBoth);
        k.released_by_operator = one_of(kBoth);
        k.if_silent = one_of(kSilent);
        k.derived = one_of(kBoth);
        k.same_fingerprint = std::rand() % 4 != 0;
        one.terms.now = kNow;
        one.terms.memory = one_of({6, 15});
        one.first_sent = one_of(kSent);
        one.terms.max_attempts = one_of({0, 2});
        one.terms.on_lease_expiry =
            one_of(kBoth) ? OnLeaseExpiry::Unknown : OnLeaseExpiry::Takeover;
        print(one);
    }
    return 0;
}
