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

// Whether an index of a plain table has claims in progress alone. No other predicate is plain.
bool has_claims_alone(Relation index);

// Such an index of any table, so that it is known without being opened: an index keeps its
// predicate as long as its OID. InvalidOid: there is none.
Oid index_of_claims(Relation table);

}  // namespace idem::store
