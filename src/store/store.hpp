// The seam to the table of records. Implementations behave the same and pass the same tests.
//
// Callers hold the key's lock for every write to one row, so that two transactions never decide
// about one key at once; the unique row is what holds even if they did.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// Rows whose retention ended after `from` and not after `until`, at most `limit` of them. A caller
// who goes on where the last batch ended need not walk over its dead rows again. `removed`, which
// may be nullptr, is told how many rows of which scope went.
struct Expired {
    TimestampTz from;
    TimestampTz until;
    std::int64_t limit;
    void (*removed)(std::string_view scope, std::int64_t rows);
};

struct Removed {
    std::int64_t rows;
    TimestampTz last;  // when the retention of the youngest of them ended
};

struct Store {
    // The newest committed row, or this transaction's own, in any isolation level. Fills `record`
    // with copies in the current memory context; false if there is none. Takes no key lock, assigns
    // no transaction id, works on a standby.
    bool (*find)(const Identity& id, Record* record);

    // Adds a row. False if the key has one already (after waiting for a transaction that is
    // writing it): nothing was written then.
    bool (*insert)(const Record& record);

    // Replaces the row whose token is `expected_token`. False if there is none.
    bool (*update)(const Record& record, std::int64_t expected_token);

    // Removes the row whose token is `expected_token`. False if there is none.
    bool (*remove)(const Identity& id, std::int64_t expected_token);

    // Removes rows that may go, oldest first, passing over rows that others have locked. Never a
    // row without a result: it may still get one.
    Removed (*remove_expired)(const Expired& which);
};

// SQL through SPI: single-row statements that a distributed table can route.
extern const Store sql_store;

// The store of this database's table.
const Store& store();

}  // namespace idem::store
