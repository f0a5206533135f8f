// The operations that differ between the two stores. Both behave the same and pass the same tests;
// store.hpp documents each function.
//
// store.cpp picks the store and the table for each access. A store itself does not know which table
// it is.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

struct Store {
    Look (*find)(const RecordTable& table, const Identity& id, Record* record);
    void (*reserve)(const RecordTable& table);
    bool (*insert)(const RecordTable& table, const Record& record);
    bool (*insert_all)(const RecordTable& table, const Record* records, int count);
    bool (*update)(const RecordTable& table, const Record& record, const Version& expected);
    bool (*remove)(const RecordTable& table, const Identity& id, const Version& expected);
    bool bypasses_executor;
};

// SQL through SPI, the reference: single-row statements that a distributed table can route. They
// name idempotency.record, the table that users know, wherever its rows are.
extern const Store sql_store;

// Index look-ups and writes through the table access method, without an executor, in a locked plain
// table.
extern const Store heap_store;

}  // namespace idem::store
