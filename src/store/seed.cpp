// Cached like policies. A trigger invalidates the table's relcache entry when its transaction
// commits, and every backend that locks a table after that has processed the message. Two backends
// with different seeds for a moment take different locks for one key. Then the row decides, as it
// does against a writer that bypasses our lock.

#include "store/seed.hpp"

#include "pg/citus.hpp"
#include "pg/datum.hpp"
#include "pg/owner.hpp"

namespace idem::store {

namespace {

core::SipKey known;
LocalTransactionId used_in = InvalidLocalTransactionId;

// A restore with --disable-triggers leaves several rows. The oldest is that of the dump.
const bytea* read_seed() {
    pg::AsOwner frame = pg::begin_as_owner(kSeedTable);
    const char* copy = pg::own_copy(kSeedTable);
    const char* sql = psprintf("SELECT value FROM idempotency.%s ORDER BY made_at, value LIMIT 1",
                               copy == nullptr ? kSeedTable : copy);
    pg::Statement read_row = {sql, 0, nullptr, pg::Access::Whole, nullptr};
    std::uint64_t rows = pg::run_read(&read_row, nullptr, nullptr);
    const bytea* value = nullptr;
    pg::take_rows(frame, rows, [&value](const pg::FoundRow& row) { value = row.text_at(1); });
    pg::drop_plan(&read_row);
    pg::end_as_owner(frame);
    return value;
}

void look(Oid) {
    const bytea* value = read_seed();
    if (value == nullptr || pg::bytes_of(value).size() != core::kSipKeyBytes)
        ereport(ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("the seed of the locks is missing"),
                 errdetail("Table idempotency.seed has no row with %zu bytes.", core::kSipKeyBytes),
                 errhint("Restore the row from a dump, or insert random bytes as the owner of "
                         "the table.")));
    std::array<unsigned char, core::kSipKeyBytes> bytes;
    memcpy(bytes.data(), pg::bytes_of(value).data(), bytes.size());
    known = core::sip_key(bytes);
}

pg::Watched watched = {kSeedTable, look};

}  // namespace

// Open claims are found by their hashes, so the seed does not change until the transaction ends.
// While a parallel plan runs, a newer snapshot can't be taken. Then every function that takes a
// lock stops at its first check, so its seed is not used.
const core::SipKey& seed() {
    if (!watched.is_current && IsInParallelMode()) return known;
    if (!watched.is_current && used_in != pg::transaction_number()) pg::look_at(&watched);
    used_in = pg::transaction_number();
    return known;
}

void announce_seed_change() {
    CacheInvalidateRelcacheByRelid(pg::table_oid(kSeedTable));
}

void make_room_for_seed(Oid table) {
    pg::Statement remove = {psprintf("DELETE FROM %s", pg::qualified_name(table)), 0, nullptr,
                            pg::Access::Whole, nullptr};
    (void)pg::write_alone(kSeedTable, &remove, nullptr, nullptr);
    pg::drop_plan(&remove);
}

void watch_seed() {
    pg::watch(&watched);
}

}  // namespace idem::store
