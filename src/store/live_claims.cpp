#include "store/live_claims.hpp"

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

// The statement names the status.
static_assert(static_cast<char>(core::Status::InProgress) == 'i');

std::int64_t live_claims(const Identity& of, std::int64_t limit) {
    if (limit <= 0) return 0;
    constexpr Oid kTypes[] = {TEXTOID, TEXTOID, INT8OID};
    const char* sql = psprintf(
        "SELECT count(*) FROM (SELECT FROM %s WHERE status = 'i' AND scope = $1 AND principal = $2"
        " AND idempotency.claim_lives(lease_until, backend_pid, backend_start) LIMIT $3) AS live",
        pg::qualified_name(lock_table_of(of.principal, AccessShareLock).table));
    pg::Statement statement = {sql, std::size(kTypes), kTypes, pg::Access::ByIndex, nullptr};
    Datum values[] = {PointerGetDatum(of.scope), PointerGetDatum(of.principal),
                      Int64GetDatum(limit)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    (void)pg::run_read(&statement, values, nullptr);
    std::int64_t live = pg::first_row().number(1);
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
    return live;
}

}  // namespace idem::store
