// Differences between server versions, as functions with the newest signature. Only this file tests
// versions (test/check_layers). pg.hpp includes it before any other server header, so an
// unsupported server gives this file's #error, not an unrelated one.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
#include "postgres.h"
}

#if PG_VERSION_NUM < 150000
#error "idempotency needs PostgreSQL 15 or later"
#elif PG_VERSION_NUM >= 200000 && !defined(IDEM_UNTESTED_SERVER)
#error "not tested with a server newer than PostgreSQL 19: try with make UNTESTED_SERVER=1"
#endif

extern "C" {
#include "access/amapi.h"
#include "access/genam.h"
#include "access/tableam.h"
#include "access/tupdesc.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#endif
}

// From 18 a module tells its name and version, which pg_get_loaded_modules() shows.
#if PG_VERSION_NUM >= 180000
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "idempotency", .version = IDEM_RELEASE)
#else
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

namespace idem::pg {

// From 18 index scans can be instrumented; from 19 they get the purpose of their rows.
inline IndexScanDesc index_beginscan(Relation table, Relation index, Snapshot snapshot, int keys) {
#if PG_VERSION_NUM >= 190000
    return ::index_beginscan(table, index, snapshot, nullptr, keys, 0, SO_NONE);
#elif PG_VERSION_NUM >= 180000
    return ::index_beginscan(table, index, snapshot, nullptr, keys, 0);
#else
    return ::index_beginscan(table, index, snapshot, keys, 0);
#endif
}

// From 19 a table scan has such a flag, too.
inline TableScanDesc table_beginscan(Relation table, Snapshot snapshot, int keys,
                                     ScanKeyData* key) {
#if PG_VERSION_NUM >= 190000
    return ::table_beginscan(table, snapshot, keys, key, SO_NONE);
#else
    return ::table_beginscan(table, snapshot, keys, key);
#endif
}

// The head of the list of our own locks (PROCLOCK::procLink) in a partition of the lock table. From
// 16 it is a dlist.
inline auto own_locks(int partition) {
#if PG_VERSION_NUM >= 160000
    return &MyProc->myProcLocks[partition].head;
#else
    return &MyProc->myProcLocks[partition];
#endif
}

// The number is a place in the list of backends. From 16 the server tells it from a backend's id.
inline LocalPgBackendStatus* backend_status(int number) {
#if PG_VERSION_NUM >= 160000
    return pgstat_get_local_beentry_by_index(number);
#else
    return pgstat_fetch_stat_local_beentry(number);
#endif
}

// The server's counters of writes in a database. From 16 they have other names.
struct WriteCounts {
    std::int64_t inserted;
    std::int64_t updated;
    std::int64_t deleted;
    TimestampTz since;  // their last reset
};

inline WriteCounts write_counts(const PgStat_StatDBEntry& entry) {
#if PG_VERSION_NUM >= 160000
    return {entry.tuples_inserted, entry.tuples_updated, entry.tuples_deleted,
            entry.stat_reset_timestamp};
#else
    return {entry.n_tuples_inserted, entry.n_tuples_updated, entry.n_tuples_deleted,
            entry.stat_reset_timestamp};
#endif
}

// From 17 an index may keep state from one entry to the next, as a block range index does.
inline void index_insert_cleanup(Relation index, IndexInfo* info) {
#if PG_VERSION_NUM >= 170000
    ::index_insert_cleanup(index, info);
#else
    (void)index;
    (void)info;
#endif
}

// From 18 a deferrable key is returned only on request, which is not made here.
inline Oid primary_key_of(Relation table) {
#if PG_VERSION_NUM >= 180000
    return RelationGetPrimaryKeyIndex(table, false);
#else
    return RelationGetPrimaryKeyIndex(table);
#endif
}

// Until 16, old_snapshot_threshold (minutes) may remove versions that an older snapshot still
// needs.
inline bool may_be_pruned_under(TimestampTz snapshot_taken, TimestampTz now) {
#if PG_VERSION_NUM >= 170000
    (void)snapshot_taken;
    (void)now;
    return false;
#else
    return old_snapshot_threshold >= 0 &&
           now - snapshot_taken >= old_snapshot_threshold * USECS_PER_MINUTE;
#endif
}

// From 19 a new row type must be marked complete, or its rows are read as if it had no columns.
inline void finish_row_type(TupleDesc columns) {
#if PG_VERSION_NUM >= 190000
    TupleDescFinalize(columns);
#else
    (void)columns;
#endif
}

// How many support functions an access method knows per column.
inline int support_functions(Relation index) {
    return index->rd_indam->amsupport;
}

// The indexes that need an entry for the new version of a row. From 16, indexes that summarize
// ranges of rows must learn even of a row that stays on its page.
struct NeedsEntries {
#if PG_VERSION_NUM >= 160000
    TU_UpdateIndexes which;
    bool any() const {
        return which != TU_None;
    }
    bool in(Relation index) const {
        return which == TU_All || index->rd_indam->amsummarizing;
    }
#else
    bool which;
    bool any() const {
        return which;
    }
    bool in(Relation) const {
        return which;
    }
#endif
};

// From 19 a caller can pass more about an update. Nothing of it is true of our rows: none moves to
// another partition, and logical decoding must see each.
inline TM_Result table_tuple_update(Relation table, ItemPointer place, TupleTableSlot* slot,
                                    CommandId command, Snapshot snapshot, Snapshot crosscheck,
                                    bool wait, TM_FailureData* failure, LockTupleMode* lock_mode,
                                    NeedsEntries* needs) {
#if PG_VERSION_NUM >= 190000
    return ::table_tuple_update(table, place, slot, command, 0, snapshot, crosscheck, wait, failure,
                                lock_mode, &needs->which);
#else
    return ::table_tuple_update(table, place, slot, command, snapshot, crosscheck, wait, failure,
                                lock_mode, &needs->which);
#endif
}

inline TM_Result table_tuple_delete(Relation table, ItemPointer place, CommandId command,
                                    Snapshot snapshot, Snapshot crosscheck, bool wait,
                                    TM_FailureData* failure) {
#if PG_VERSION_NUM >= 190000
    return ::table_tuple_delete(table, place, command, 0, snapshot, crosscheck, wait, failure);
#else
    return ::table_tuple_delete(table, place, command, snapshot, crosscheck, wait, failure, false);
#endif
}

// From 16 one function checks every kind of object.
inline AclResult function_aclcheck(Oid function, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(ProcedureRelationId, function, role, mode);
#else
    return pg_proc_aclcheck(function, role, mode);
#endif
}

inline AclResult schema_aclcheck(Oid schema, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(NamespaceRelationId, schema, role, mode);
#else
    return pg_namespace_aclcheck(schema, role, mode);
#endif
}

// From 17 a module that was not preloaded can have shared memory; nullptr where it cannot. From 19
// `init` can take an argument, which ours does not need.
inline void* named_segment(const char* name, std::size_t size, void (*init)(void*)) {
#if PG_VERSION_NUM >= 190000
    bool found;
    auto call = [](void* memory, void* function) {
        reinterpret_cast<void (*)(void*)>(function)(memory);
    };
    return GetNamedDSMSegment(name, size, call, &found, reinterpret_cast<void*>(init));
#elif PG_VERSION_NUM >= 170000
    bool found;
    return GetNamedDSMSegment(name, size, init, &found);
#else
    (void)name;
    (void)size;
    (void)init;
    return nullptr;
#endif
}

// The place of this backend in the array of all processes.
inline int own_process_number() {
#if PG_VERSION_NUM >= 170000
    return MyProcNumber;
#else
    return MyProc->pgprocno;
#endif
}

// Tells a transaction of this backend from the one before it.
inline LocalTransactionId transaction_number() {
#if PG_VERSION_NUM >= 170000
    return MyProc->vxid.lxid;
#else
    return MyProc->lxid;
#endif
}

// From 17 a virtual transaction names its process by the place in the array of processes. nullptr:
// that process no longer runs it, because it has ended or is prepared.
inline const PGPROC* process_of(const VirtualTransactionId& transaction) {
#if PG_VERSION_NUM >= 170000
    const PGPROC* process = ProcNumberGetProc(transaction.procNumber);
    bool runs = process != nullptr && process->vxid.lxid == transaction.localTransactionId;
#else
    const PGPROC* process = BackendIdGetProc(transaction.backendId);
    bool runs = process != nullptr && process->lxid == transaction.localTransactionId;
#endif
    return runs ? process : nullptr;
}

// 0: no backend has it.
inline int pid_of(const VirtualTransactionId& transaction) {
    const PGPROC* process = process_of(transaction);
    return process == nullptr ? 0 : process->pid;
}

// Takes a lock that is free, if the lock table has room; else returns false, where LockAcquire
// would raise an error. For callers that can do without the lock. From 18 a failed try may be
// logged.
inline bool lock_if_room(const LOCKTAG& tag, LOCKMODE mode) {
    constexpr bool session = false, dont_wait = true, report_full = false;
#if PG_VERSION_NUM >= 180000
    return ::LockAcquireExtended(&tag, mode, session, dont_wait, report_full, nullptr, false) !=
           LOCKACQUIRE_NOT_AVAIL;
#else
    return ::LockAcquireExtended(&tag, mode, session, dont_wait, report_full, nullptr) !=
           LOCKACQUIRE_NOT_AVAIL;
#endif
}

// From 17 an extension can name what it waits for.
inline std::uint32_t new_wait_event(const char* name) {
#if PG_VERSION_NUM >= 170000
    return WaitEventExtensionNew(name);
#else
    (void)name;
    return PG_WAIT_EXTENSION;
#endif
}

// From 19 the server keeps the name of a tranche; until then each process that waits in one must
// register it.
inline int new_lock_tranche(const char* name) {
#if PG_VERSION_NUM >= 190000
    return LWLockNewTrancheId(name);
#else
    (void)name;
    return LWLockNewTrancheId();
#endif
}

inline void know_lock_tranche(int tranche, const char* name) {
#if PG_VERSION_NUM >= 190000
    (void)tranche;
    (void)name;
#else
    LWLockRegisterTranche(tranche, name);
#endif
}

// From 19 a jsonb under construction keeps its result itself; until then each step returns it.
#if PG_VERSION_NUM >= 190000
using ::JsonbInState;
#else
struct JsonbInState {
    JsonbValue* result;
    JsonbParseState* parseState;
};
#endif

inline void push_jsonb_value(JsonbInState* state, JsonbIteratorToken token, JsonbValue* value) {
#if PG_VERSION_NUM >= 190000
    ::pushJsonbValue(state, token, value);
#else
    state->result = ::pushJsonbValue(&state->parseState, token, value);
#endif
}

// Whether DROP DATABASE was interrupted. Until 15.3 such a database looks like any other, and
// the server has no function for it. The later function compares the same number.
inline bool is_invalid_database(Form_pg_database form) {
    constexpr int kInvalid = -2;
#ifdef DATCONNLIMIT_INVALID_DB
    static_assert(kInvalid == DATCONNLIMIT_INVALID_DB);
#endif
    return form->datconnlimit == kInvalid;
}

// ---- the planner ----

// From 19 the hook gets the state of EXPLAIN as well. Its parameters after the query, and the
// arguments to pass on.
#if PG_VERSION_NUM >= 190000
#define IDEM_PLANNER_PARAMETERS \
    const char *text, int options, ParamListInfo bound, ExplainState *explaining
#define IDEM_PLANNER_ARGUMENTS text, options, bound, explaining
#else
#define IDEM_PLANNER_PARAMETERS const char *text, int options, ParamListInfo bound
#define IDEM_PLANNER_ARGUMENTS text, options, bound
#endif

// From 16 these are macros that cast the walker; until then its type has no parameters.
using TreeWalker = bool (*)(Node*, void*);

inline bool walk_query(Query* query, TreeWalker walker, void* context) {
#if PG_VERSION_NUM >= 160000
    return query_tree_walker(query, walker, context, 0);
#else
    return query_tree_walker(query, reinterpret_cast<bool (*)()>(reinterpret_cast<void*>(walker)), context, 0);
#endif
}

inline bool walk_expression(Node* node, TreeWalker walker, void* context) {
#if PG_VERSION_NUM >= 160000
    return expression_tree_walker(node, walker, context);
#else
    return expression_tree_walker(node, reinterpret_cast<bool (*)()>(reinterpret_cast<void*>(walker)), context);
#endif
}

}  // namespace idem::pg
