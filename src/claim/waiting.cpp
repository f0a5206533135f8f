#include "claim/waiting.hpp"

#include "core/time.hpp"

#include "claim/asking.hpp"
#include "claim/key_lock.hpp"
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/timed_wait.hpp"

namespace idem::claim {

namespace {

constexpr std::int64_t kFirstPause = 5 * core::kMillisecond;
constexpr std::int64_t kLongestPause = 500 * core::kMillisecond;

void wait_for_end(void* transaction) {
    pg::wait_for_transaction(*static_cast<const TransactionId*>(transaction));
}

// Until lock_timeout ends the wait for a lease; kForEver: never.
std::int64_t lock_timeout_left(Patience* patience) {
    std::int64_t now = pg::monotonic_micros();
    if (patience->lease_wait_start == 0) patience->lease_wait_start = now;
    if (LockTimeout == 0) return kForEver;
    return patience->lease_wait_start + LockTimeout * core::kMillisecond - now;
}

}  // namespace

Patience patience_for(std::int64_t wait) {
    std::int64_t now = pg::monotonic_micros();
    return {now, wait == kForEver ? kForEver : now + wait, 0, kFirstPause, false};
}

std::int64_t time_left(const Patience& patience) {
    if (patience.deadline == kForEver) return kForEver;
    return patience.deadline - pg::monotonic_micros();
}

std::int64_t time_waited(const Patience& patience) {
    return patience.waited ? Max(pg::monotonic_micros() - patience.start, 1) : 0;
}

bool wait_for_lock(const store::Identity& id, std::int64_t left) {
    if (left != kForEver) return lock_within(id, left);
    lock(id);
    return true;
}

void wait_for_writer(TransactionId writer, std::int64_t left) {
    if (left == kForEver)
        pg::wait_for_transaction(writer);
    else
        (void)pg::wait_at_most(left, wait_for_end, &writer);
}

void wait_for_lease(Patience* patience, std::int64_t left) {
    std::int64_t until_timeout = lock_timeout_left(patience);
    if (until_timeout <= 0) pg::raise_lease_wait_timeout();
    std::int64_t pause = Min(Min(patience->pause, left), until_timeout);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                    static_cast<long>(Max(pause / core::kMillisecond, 1)), PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    patience->pause = Min(patience->pause * 2, kLongestPause);
}

}  // namespace idem::claim
