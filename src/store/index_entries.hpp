// The entries that a table's indexes need for a row written through the table access method.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Of a new row in `slot`, which knows its place. An error (23505) if its key is there already.
void add_index_entries(Relation table, TupleTableSlot* slot);

// Of a new version of a row whose key is the same.
void update_index_entries(Relation table, TupleTableSlot* slot, pg::NeedsEntries needs);

}  // namespace idem::store
