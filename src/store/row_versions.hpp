// All versions of the row of a key, beside what a snapshot knows of them and what goes on with
// them.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

// See past_of in store.hpp. Looks into the table, its partitions and its children, as far as they
// are heaps of this server; of a foreign table's past nothing is known here.
Past past_of_versions(const RecordTable& table, Snapshot snapshot, const Identity& id);

// Whether another transaction that has not ended has made, removed or locked a version. Where that
// can't be known, it is taken for granted.
bool versions_busy(const RecordTable& table, const Identity& id);

}  // namespace idem::store
