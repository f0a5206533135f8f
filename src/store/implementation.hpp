// What the two stores do differently. They behave the same and pass the same tests; store.hpp says
// what each function is for.
//
// A store is given the table each time, by whoever has picked both (store.cpp), and has no notion
// of its own which one it is.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

struct Store {
    Look (*find)(const RecordTable& table, const Identity& id, Record* record);
    void (*reserve)(const RecordTable& table);
    bool (*insert)(const RecordTable& table, const Record& record);
    bool (*update)(const RecordTable& table, const Record& record, const Version& expected);
    bool (*remove)(const RecordTable& table, const Identity& id, const Version& expected);
    bool bypasses_executor;
};

// SQL through SPI: single-row statements that a distributed table can route. The reference. They
// name idempotency.record, which is the table that users know, wherever its rows are.
extern const Store sql_store;

// Index look-ups and writes through the table access method, without an executor, in a plain table
// that is locked.
extern const Store heap_store;

}  // namespace idem::store
