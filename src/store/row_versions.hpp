// All versions of the row of a key, beside what a snapshot knows of them and what goes on with
// them.
#pragma once

#include "store/record.hpp"

namespace idem::store {

// See Store::known_to. Looks into the table of records, its partitions and its children, as far as
// they are heaps of this server; of a foreign table's past nothing is known here.
bool versions_known_to(Snapshot snapshot, const Identity& id);

// Whether another transaction that has not ended has made, removed or locked a version. Where that
// can't be known, it is taken for granted.
bool versions_busy(const Identity& id);

}  // namespace idem::store
