// How old a snapshot may be: a grant is refused to whoever may not see what an earlier attempt did.
//
// The server does not note when it takes a snapshot (SnapshotData has whenTaken only for
// old_snapshot_threshold, until 16). What is known is the start of what it belongs to, which is
// never later: the transaction's, the statement's, or its portal's. One that pg_export_snapshot()
// has given away may be older than all of them, so a hook of ProcessUtility sees SET TRANSACTION
// SNAPSHOT go by. Every doubt counts as "older".
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// The transaction's snapshot, from REPEATABLE READ on, was not taken earlier than that. DT_NOBEGIN:
// one that SET TRANSACTION SNAPSHOT has imported may be of any age.
TimestampTz transaction_snapshot_since();

// The same for the active snapshot, with which the calling statement sees.
TimestampTz active_snapshot_since();

// Whether no transaction has ended since the snapshot was taken, so that it is as good as a new
// one.
bool is_as_good_as_new(Snapshot snapshot);

// Called once, when the library is loaded.
void watch_imported_snapshots();

}  // namespace idem::pg
