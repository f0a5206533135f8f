// A look at the row of one key past all snapshots: with a dirty snapshot an index scan meets the
// newest committed version and what other transactions have written and not yet committed. It
// takes no predicate locks, so that SERIALIZABLE callers meet no false conflicts.
#pragma once

#include "store/record.hpp"

namespace idem::store {

struct RowLook {
    TupleTableSlot* slot;  // the newest committed version, or our own, if `found`
    bool found;
    TransactionId writer;  // in progress, and has written a version; InvalidTransactionId: none
};

// `index` is the primary key. The slot is of the table's kind; a found row stays pinned in it.
RowLook look_at_row(Relation table, Relation index, const Identity& id, TupleTableSlot* slot);

}  // namespace idem::store
