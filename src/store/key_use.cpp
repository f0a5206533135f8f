// Cached like the seed. A trigger invalidates the table's relcache entry when its transaction
// commits.
//
// The table has no primary key: the first transaction that uses a key would make all others wait.
// Transactions that use a key first at the same time write a row each. If two of them had different
// keys, both keys are refused from then on.

#include "store/key_use.hpp"

#include "core/seal.hpp"

#include "pg/datum.hpp"
#include "pg/owner.hpp"

namespace idem::store {

namespace {

struct UsedKey {
    text* id;
    bytea* check;
};

// Replaced as a whole.
struct Known {
    MemoryContext context;
    UsedKey* keys;
    std::uint64_t count;
};
Known known;

void look(Oid) {
    Known next{};
    next.context =
        AllocSetContextCreate(CurrentMemoryContext, "idempotency keys", ALLOCSET_SMALL_SIZES);
    MemoryContext caller = MemoryContextSwitchTo(next.context);
    pg::AsOwner frame = pg::begin_as_owner(kKeyTable);
    pg::Statement read = {"SELECT DISTINCT key_id, check_value FROM idempotency.encryption_key", 0,
                          nullptr, pg::Access::Whole, nullptr};
    next.count = pg::run_read(&read, nullptr, nullptr);
    next.keys = pg::made_of_rows(frame, next.count, [](const pg::FoundRow& row) {
        return UsedKey{row.text_at(1), row.text_at(2)};
    });
    pg::drop_plan(&read);
    pg::end_as_owner(frame);
    MemoryContextSwitchTo(caller);
    MemoryContextSetParent(next.context, CacheMemoryContext);
    if (known.context != nullptr) MemoryContextDelete(known.context);
    known = next;
}

pg::Watched watched = {kKeyTable, look};

constexpr Oid kKeyAndCheck[] = {TEXTOID, BYTEAOID};

}  // namespace

KeyUse use_of_key(std::string_view id, std::string_view check) {
    if (!watched.is_current) pg::look_at(&watched);
    KeyUse use = KeyUse::First;
    for (std::uint64_t i = 0; i < known.count; i++) {
        if (pg::bytes_of(known.keys[i].id) != id) continue;
        if (!core::same_secret(pg::bytes_of(known.keys[i].check), check)) return KeyUse::Other;
        use = KeyUse::Same;
    }
    return use;
}

void keep_key(std::string_view id, std::string_view check) {
    pg::Statement insert = {
        "INSERT INTO idempotency.encryption_key (key_id, check_value) VALUES ($1, $2)", 2,
        kKeyAndCheck, pg::Access::Whole, nullptr};
    Datum values[] = {PointerGetDatum(pg::make_text(id)), PointerGetDatum(pg::make_text(check))};
    (void)pg::write_alone(kKeyTable, &insert, values, nullptr);
    pg::drop_plan(&insert);
}

void announce_key_change() {
    CacheInvalidateRelcacheByRelid(pg::table_oid(kKeyTable));
}

void watch_keys() {
    pg::watch(&watched);
}

}  // namespace idem::store
