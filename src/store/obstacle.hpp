// Whether rows of a table can be written past the executor.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Why only the executor can write its rows; nullptr: it is a plain table with the columns of a
// record. `at_commit`: the part of these that other sessions cannot add while a claim is open, and
// that an insertion or update at commit could not handle. A child table that they create, or an
// index that they build CONCURRENTLY, does not matter then.
const char* obstacle_of(Relation table, bool at_commit);

// The primary key column whose collation makes different keys equal; nullptr: none.
const char* folding_column_of(Relation table);

// The rows of which an index of a plain table has entries. No other predicate is plain.
enum class Rows { All, Outstanding, Due, Sealed };
Rows rows_of(Relation index);

// The partial indexes of any table, so that they are known without being opened: an index keeps its
// predicate as long as its OID. InvalidOid: there is none.
struct PartialIndexes {
    Oid outstanding;
    Oid due;
    Oid sealed;
};
PartialIndexes partial_indexes_of(Relation table);

}  // namespace idem::store
