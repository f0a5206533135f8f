#include "claim/waiting.hpp"

#include "core/duration.hpp"

#include "claim/asking.hpp"
#include "claim/key_lock.hpp"
#include "pg/timed_wait.hpp"

namespace idem::claim {

namespace {

constexpr std::int64_t kFirstPause = 5 * core::kMillisecond;
constexpr std::int64_t kLongestPause = 500 * core::kMillisecond;

void wait_for_end(const void* transaction) {
    pg::wait_for_transaction(*static_cast<const TransactionId*>(transaction));
}

}  // namespace

Patience patience_for(std::int64_t wait) {
    TimestampTz now = GetCurrentTimestamp();
    return {now, wait == kForEver ? kForEver : now + wait, kFirstPause, false};
}

std::int64_t time_left(const Patience& patience) {
    if (patience.deadline == kForEver) return kForEver;
    return patience.deadline - GetCurrentTimestamp();
}

std::int64_t time_waited(const Patience& patience) {
    return patience.waited ? Max(GetCurrentTimestamp() - patience.start, 1) : 0;
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
    long millis = static_cast<long>(Min(patience->pause, left) / core::kMillisecond);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(millis, 1),
                    PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    patience->pause = Min(patience->pause * 2, kLongestPause);
}

}  // namespace idem::claim
