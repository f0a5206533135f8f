// TryToDelegateFunctionCall defines which statements Citus delegates. SELECT ... FROM f(...) with
// bound parameters is one, even while the session is inside another statement.

#include "api/forward.hpp"

#include "pg/citus.hpp"
#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::api {

namespace {

// How often the session is making the same call again, one within the other. The second time is for
// metadata that were synchronized since Citus planned the first.
int forwarding;
constexpr int kAttempts = 2;

[[noreturn]] void raise_not_synchronized() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("the records of this principal are on another node"),
                    errdetail("Citus delegates no call before it has synchronized its metadata."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

[[noreturn]] void raise_not_delegated() {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("the records of this principal are on another node"),
                    errdetail("Citus has not delegated the call to it."),
                    errhint("Distribute the records with idem_distribute(), and do not call from a "
                            "query on a shard: Citus delegates no such call.")));
    pg_unreachable();
}

void expect_delegation() {
    if (pg::is_synchronizing()) raise_not_synchronized();
    if (forwarding == kAttempts) raise_not_delegated();
}

// Citus copies the rows of a query to other nodes while the query runs (CitusCopyDestReceiver and
// RemoteFileDestReceiver). That may occupy the transaction's own connections. A repeat would fail
// alike, which the connections' errors do not say.
void rethrow_unless_busy(MemoryContext context) {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    bool is_busy = error->sqlerrcode == ERRCODE_CONNECTION_FAILURE ||
                   error->sqlerrcode == ERRCODE_ACTIVE_SQL_TRANSACTION;
    bool is_sending_rows = ActivePortal != nullptr && ActivePortal->queryDesc != nullptr &&
                           ActivePortal->queryDesc->dest->mydest == DestCopyOut;
    if (!is_busy || !is_sending_rows) PG_RE_THROW();
    FlushErrorState();
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("the records of this principal are on another node"),
                    errdetail("The call is part of a query whose rows Citus is sending there: %s",
                              error->message),
                    errhint("Call in a statement of its own.")));
}

// Whether the session runs a query that names tables, and not only the call.
bool is_within_query() {
    ListCell* statement;
    foreach (statement, ActivePortal == nullptr ? NIL : ActivePortal->stmts) {
        ListCell* entry;
        foreach (entry, lfirst_node(PlannedStmt, statement)->rtable)
            if (lfirst_node(RangeTblEntry, entry)->rtekind == RTE_RELATION) return true;
    }
    return false;
}

// The position of an argument; -1: the function has none of that name.
int argument_called(FunctionCallInfo fcinfo, const char* wanted) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
    if (!HeapTupleIsValid(tuple)) elog(ERROR, "idempotency: a function is gone while it runs");
    Oid* types;
    char** names;
    char* modes;
    int count = get_func_arg_info(tuple, &types, &names, &modes);
    ReleaseSysCache(tuple);
    for (int i = 0; names != nullptr && i < count; i++)
        if (strcmp(names[i], wanted) == 0) return i;
    return -1;
}

// A composite arrives as its columns. If all of them are null, it was null.
Datum composite_of(HeapTuple row, TupleDesc columns, Oid type, bool* is_null) {
    TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
    auto count = static_cast<Size>(columns->natts);
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * count));
    heap_deform_tuple(row, columns, values, nulls);
    *is_null = true;
    for (Size i = 0; i < count; i++) *is_null = *is_null && nulls[i];
    Datum result =
        *is_null ? static_cast<Datum>(0) : HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
    ReleaseTupleDesc(desc);
    return result;
}

// Converts the one row fetched by SPI to the function's result, in the caller's memory.
Datum take_result(FunctionCallInfo fcinfo, MemoryContext context) {
    if (SPI_processed != 1) elog(ERROR, "idempotency: a call on another node returned no row");
    Oid type = get_func_rettype(fcinfo->flinfo->fn_oid);
    MemoryContext spi_context = MemoryContextSwitchTo(context);
    HeapTuple row = SPI_tuptable->vals[0];
    TupleDesc columns = SPI_tuptable->tupdesc;
    Datum result;
    if (type_is_rowtype(type)) {
        result = composite_of(row, columns, type, &fcinfo->isnull);
    } else {
        std::int16_t length;
        bool by_value;
        get_typlenbyval(type, &length, &by_value);
        result = heap_getattr(row, 1, columns, &fcinfo->isnull);
        if (!fcinfo->isnull) result = datumCopy(result, by_value, length);
    }
    MemoryContextSwitchTo(spi_context);
    return result;
}

// The rows fetched by SPI, as those of a function that returns a set of one column.
void take_rows(FunctionCallInfo fcinfo, MemoryContext context) {
    SPITupleTable* found = SPI_tuptable;
    std::uint64_t count = SPI_processed;
    MemoryContext spi_context = MemoryContextSwitchTo(context);
    InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    for (std::uint64_t i = 0; i < count; i++) {
        bool null;
        Datum value = heap_getattr(found->vals[i], 1, found->tupdesc, &null);
        tuplestore_putvalues(result->setResult, result->setDesc, &value, &null);
    }
    MemoryContextSwitchTo(spi_context);
}

// Runs SELECT * FROM schema.function($1, $2, ...) with the call's arguments.
Datum run_there(FunctionCallInfo fcinfo) {
    Oid function = fcinfo->flinfo->fn_oid;
    Oid* types;
    int count;
    (void)get_func_signature(function, &types, &count);
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * static_cast<Size>(count)));
    auto* nulls = static_cast<char*>(palloc(static_cast<Size>(count)));
    StringInfoData sql;
    initStringInfo(&sql);
    appendStringInfo(&sql, "SELECT * FROM %s(",
                     quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
                                                get_func_name(function)));
    for (int i = 0; i < count; i++) {
        values[i] = PG_GETARG_DATUM(i);
        nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
        appendStringInfo(&sql, i == 0 ? "$%d" : ", $%d", i + 1);
    }
    appendStringInfoChar(&sql, ')');
    MemoryContext context = CurrentMemoryContext;
    pg::connect_spi();
    int code = SPI_execute_with_args(sql.data, count, types, values, nulls, false, 0);
    if (code != SPI_OK_SELECT)
        elog(ERROR, "idempotency: SPI failed: %s", SPI_result_code_string(code));
    Datum result = 0;
    if (fcinfo->flinfo->fn_retset)
        take_rows(fcinfo, context);
    else
        result = take_result(fcinfo, context);
    (void)SPI_finish();
    return result;
}

// Citus has sent the call, or its query, to a node without the records. No other node would learn
// of a decision made here. This happens in the transaction that distributes the records: not every
// connection of it sees the shards.
[[noreturn]] void raise_not_distributed() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("records are not distributed"),
                    errdetail("Citus has sent the call to a node without records."),
                    errhint("Call idem_distribute(), in a transaction of its own.")));
    pg_unreachable();
}

}  // namespace

// The function itself refuses a null argument.
bool belongs_elsewhere(FunctionCallInfo fcinfo) {
    if (!store::is_distributed()) {
        if (pg::is_session_of_citus()) raise_not_distributed();
        return false;
    }
    int principal = argument_called(fcinfo, "principal");
    if (principal < 0 || PG_ARGISNULL(principal)) return false;
    if (store::table_of(PG_GETARG_TEXT_PP(principal)) != nullptr) return false;
    if (!pg::is_session_of_citus()) return true;
    if (!is_within_query()) store::raise_elsewhere();
    // Citus sends a query on tables to the nodes with their rows, with every call in it.
    ereport(ERROR,
            (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
             errmsg("the records of this principal are on another node"),
             errdetail("The call is part of a query on tables, which runs where their rows are."),
             errhint("Call in a statement of its own, or with a principal whose rows the query "
                     "is about.")));
    pg_unreachable();
}

Datum forward(FunctionCallInfo fcinfo) {
    if (forwarding > 0) expect_delegation();
    MemoryContext context = CurrentMemoryContext;
    volatile Datum result = 0;
    int guc_level = NewGUCNestLevel();
    // This session's transaction is the one that Citus commits. So it may also ask from within a
    // query that Citus runs on a shard of this node (IsTaskExecutionAllowed).
    pg::allow_within_tasks();
    // The session prints times in its own format, and the other one reads them by its own settings;
    // so the format is fixed.
    pg::set_locally("DateStyle", "ISO");
    pg::set_locally("IntervalStyle", "postgres");
    forwarding++;
    PG_TRY();
    { result = run_there(fcinfo); }
    PG_CATCH();
    {
        forwarding--;
        rethrow_unless_busy(context);
    }
    PG_END_TRY();
    forwarding--;
    AtEOXact_GUC(false, guc_level);
    return result;
}

}  // namespace idem::api
