// All versions of the row of a key: what a snapshot knows of them, and which transactions are
// changing them.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

// See past_of in store.hpp. Looks into the table, its partitions and its children, if they are
// heaps of this server. The past of a foreign table is unknown.
Past past_of_versions(const RecordTable& table, Snapshot snapshot, const Identity& id);

// Whether another running transaction has made, removed or locked a version. True if that is
// unknown.
bool versions_busy(const RecordTable& table, const Identity& id);

}  // namespace idem::store
