// Picks a store for each access. Between two accesses the table may have gained or lost an obstacle
// that only SQL can serve, and two stores on one table at a time would not see each other's rows.
// The lock comes first, in the mode that the access needs anyway: the session it waits for may be
// changing the table. CREATE TRIGGER admits readers and blocks writers, so a store picked for a
// read is not valid for a write.

#include "store/store.hpp"

#include "config/settings.hpp"
#include "store/implementation.hpp"
#include "store/row_versions.hpp"
#include "store/store_errors.hpp"

namespace idem::store {

namespace {

// The place of a key's record, and its store.
struct Place {
    const Store& store;
    const RecordTable& table;
};

const Store& store_of(const RecordTable& table) {
    // The row of another key would be found, and its answer replayed.
    if (table.folding_column != nullptr)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("table idempotency.record has a nondeterministic collation"),
                        errdetail("Column %s has a collation that is not deterministic.",
                                  table.folding_column),
                        errhint("Give the column the collation \"C\", as CREATE EXTENSION does.")));
    config::StoreChoice choice = config::store_choice();
    if (choice == config::StoreChoice::Sql) return sql_store;
    const char* obstacle = obstacle_now(table);
    if (obstacle == nullptr) return heap_store;
    if (choice == config::StoreChoice::Heap)
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("the heap store cannot serve table idempotency.record"),
                 errdetail("%s", obstacle), errhint("Set idempotency.store to auto or sql.")));
    return sql_store;
}

// If only SQL may serve, its statements take their own locks, except a shard's.
Place place_of(const Identity& id, LOCKMODE mode) {
    bool only_sql = config::store_choice() == config::StoreChoice::Sql;
    if (only_sql && !is_distributed()) return {store_of(record_table()), record_table()};
    const RecordTable& table = lock_table_of(id.principal, mode);
    return {store_of(table), table};
}

}  // namespace

Look find(const Identity& id, Record* record) {
    return watched(id.scope, [&] {
        Place place = place_of(id, AccessShareLock);
        return place.store.find(place.table, id, record);
    });
}

Past past_of(const Identity& id, Snapshot snapshot) {
    return watched(id.scope, [&] {
        return past_of_versions(place_of(id, AccessShareLock).table, snapshot, id);
    });
}

bool is_busy(const Identity& id) {
    return watched(id.scope,
                   [&] { return versions_busy(place_of(id, AccessShareLock).table, id); });
}

void lock_for_writing(const Identity& id) {
    watched(id.scope, [&] { (void)lock_table_of(id.principal, RowExclusiveLock); });
}

void reserve(const Identity& id) {
    watched(id.scope, [&] {
        Place place = place_of(id, RowExclusiveLock);
        place.store.reserve(place.table);
    });
}

bool insert(const Record& record) {
    return watched(record.id.scope, [&] {
        Place place = place_of(record.id, RowExclusiveLock);
        return place.store.insert(place.table, record);
    });
}

bool insert_all(const Record* records, int count) {
    const Identity& first = records[0].id;
    return watched(first.scope, [&] {
        Place place = place_of(first, RowExclusiveLock);
        return place.store.insert_all(place.table, records, count);
    });
}

bool update(const Record& record, const Version& expected) {
    return watched(record.id.scope, [&] {
        Place place = place_of(record.id, RowExclusiveLock);
        return place.store.update(place.table, record, expected);
    });
}

bool remove(const Identity& id, const Version& expected) {
    return watched(id.scope, [&] {
        Place place = place_of(id, RowExclusiveLock);
        return place.store.remove(place.table, id, expected);
    });
}

bool bypasses_executor(const Identity& id) {
    return place_of(id, AccessShareLock).store.bypasses_executor;
}

Service service_of(const RecordTable& table) {
    if (config::store_choice() == config::StoreChoice::Sql)
        return {"sql", "idempotency.store is sql."};
    const char* why = obstacle_now(table);
    return {why == nullptr ? "heap" : "sql", why};
}

void check_store() {
    if (!is_distributed()) (void)place_of(Identity{}, AccessShareLock);
}

}  // namespace idem::store
