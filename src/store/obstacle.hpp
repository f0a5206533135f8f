// Whether rows of a table can be written past the executor.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Why only the executor can write its rows; nullptr: it is a plain table, with the columns of a
// record.
const char* obstacle_of(Relation table);

// Of that, what others cannot have done beside a claim that is open, and which an insertion or
// update at commit could not bear. A child table that they make, or an index that they build
// CONCURRENTLY, does not matter to it.
const char* obstacle_at_commit_of(Relation table);

// The column of the primary key under whose collation different keys are equal; nullptr: none.
const char* folding_column_of(Relation table);

// Whether an index of a plain table leaves rows out: it has those of claims in progress alone, for
// no other predicate is plain.
bool has_claims_alone(Relation index);

// Such an index of any table, by which it is known without being opened: an index keeps its
// predicate for as long as it has its OID. InvalidOid: there is none.
Oid index_of_claims(Relation table);

}  // namespace idem::store
