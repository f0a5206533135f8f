#include "claim/token.hpp"

#include "core/token.hpp"

#include "pg/shared_memory.hpp"

namespace idem::claim {

namespace {

// The time of the last token that this server has made.
pg::SharedMemory shared_last_time = {
    "idempotency tokens", [] { return sizeof(pg_atomic_uint64); },
    [](void* memory) { pg_atomic_init_u64(static_cast<pg_atomic_uint64*>(memory), 0); }, nullptr,
    nullptr};
pg_atomic_uint64 own_last_time;  // static storage, so it begins with zero

}  // namespace

// What is remembered are times alone: a record whose token is far ahead must not take all others
// with it. The server's clock counts microseconds since 2000-01-01, as tokens do.
std::int64_t new_token(std::int64_t previous) {
    void* shared = pg::attach(&shared_last_time);
    auto* last = shared != nullptr ? static_cast<pg_atomic_uint64*>(shared) : &own_last_time;
    std::int64_t now = GetCurrentTimestamp();
    std::uint64_t seen = pg_atomic_read_u64(last);
    std::int64_t time;
    do {
        time = core::token_time(now, static_cast<std::int64_t>(seen));
    } while (!pg_atomic_compare_exchange_u64(last, &seen, static_cast<std::uint64_t>(time)));
    return core::next_token(time, pg_prng_uint32(&pg_global_prng_state), previous);
}

void request_token_memory() {
    pg::request_shared_memory(&shared_last_time);
}

}  // namespace idem::claim
