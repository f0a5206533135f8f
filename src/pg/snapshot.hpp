// The age of a snapshot: a grant is refused to a transaction that may not see an earlier attempt's
// effects.
//
// The server does not note when it takes a snapshot (SnapshotData has whenTaken only for
// old_snapshot_threshold, until 16). Known is the start of the snapshot's transaction, statement or
// portal, which is never later. A snapshot that pg_export_snapshot() gave away may be older than
// all of them, so a hook of ProcessUtility watches for SET TRANSACTION SNAPSHOT. In doubt a
// snapshot counts as older.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// The transaction's snapshot, from REPEATABLE READ on, is not older than this. DT_NOBEGIN: imported
// by SET TRANSACTION SNAPSHOT, of any age.
TimestampTz transaction_snapshot_since();

// The same for the active snapshot, which the calling statement uses.
TimestampTz active_snapshot_since();

// Whether no transaction has ended since the snapshot was taken: it is then as good as a new one.
bool is_as_good_as_new(Snapshot snapshot);

// Called once, when the library is loaded.
void watch_imported_snapshots();

}  // namespace idem::pg
