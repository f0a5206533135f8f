#include "pg/snapshot.hpp"

namespace idem::pg {

namespace {

bool imported;  // the running transaction may have imported its snapshot
ProcessUtility_hook_type previous_hook;

bool imports_snapshot(const PlannedStmt* statement) {
    if (!IsA(statement->utilityStmt, VariableSetStmt)) return false;
    const auto* set = reinterpret_cast<const VariableSetStmt*>(statement->utilityStmt);
    return set->kind == VAR_SET_MULTI && strcmp(set->name, "TRANSACTION SNAPSHOT") == 0;
}

void note_import(PlannedStmt* statement, const char* text, bool read_only_tree,
                 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment* environment,
                 DestReceiver* receiver, QueryCompletion* completion) {
    if (imports_snapshot(statement)) imported = true;
    auto next = previous_hook != nullptr ? previous_hook : standard_ProcessUtility;
    next(statement, text, read_only_tree, context, params, environment, receiver, completion);
}

void forget_import(XactEvent event, void*) {
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        imported = false;
}

// A query that a cursor or the extended protocol runs in pieces keeps the snapshot from the start
// of its portal. A CALL keeps none from one statement to the next.
bool keeps_snapshot(Portal portal) {
    return portal != nullptr && portal->strategy != PORTAL_MULTI_QUERY;
}

}  // namespace

TimestampTz transaction_snapshot_since() {
    return imported ? DT_NOBEGIN : GetCurrentTransactionStartTimestamp();
}

// A procedure may have begun a transaction within its CALL.
TimestampTz active_snapshot_since() {
    TimestampTz since =
        Max(GetCurrentStatementStartTimestamp(), GetCurrentTransactionStartTimestamp());
    return keeps_snapshot(ActivePortal) ? Min(since, ActivePortal->creation_time) : since;
}

// As GetSnapshotData() fills it: xmax is one more than the newest xid that has ended, and xip has
// the running ones below. With the same xmax, no transaction has both begun and ended since: one
// that only began has an xid above it. No xid is added below xmax, so an equal count of running
// ones means the same ones.
bool is_as_good_as_new(Snapshot snapshot) {
    Snapshot latest = GetLatestSnapshot();
    return latest->xmax == snapshot->xmax && latest->xcnt == snapshot->xcnt;
}

// A library loaded in the middle of a transaction cannot know its earlier statements.
void watch_imported_snapshots() {
    imported = IsTransactionState();
    previous_hook = ProcessUtility_hook;
    ProcessUtility_hook = note_import;
    RegisterXactCallback(forget_import, nullptr);
}

}  // namespace idem::pg
