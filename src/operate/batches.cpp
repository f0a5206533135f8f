// One scan chooses the records, and its snapshot ends before the first record is changed. The
// result is kept across transactions, as PersistHoldablePortal keeps a cursor.

#include "operate/batches.hpp"

#include "api/arguments.hpp"
#include "pg/boundary.hpp"
#include "pg/owner.hpp"
#include "store/record.hpp"

namespace idem::operate {

using namespace api;

namespace {

// ---- which records ----

constexpr int kChosenColumns = 4;

struct Chosen {
    TupleDesc columns;  // scope, principal, key, claimed_at
    Tuplestorestate* rows;
};

// Some thousand names fit into memory; more go to a file.
Chosen nothing_chosen() {
    Chosen chosen{CreateTemplateTupleDesc(kChosenColumns),
                  tuplestore_begin_heap(false, true, work_mem)};
    AttrNumber number = 0;
    for (const char* name : {"scope", "principal", "key"})
        TupleDescInitEntry(chosen.columns, ++number, name, TEXTOID, -1, 0);
    TupleDescInitEntry(chosen.columns, ++number, "claimed_at", TIMESTAMPTZOID, -1, 0);
    pg::finish_row_type(chosen.columns);
    return chosen;
}

// Oldest first, with the rights of the table's owner. In a cluster Citus asks all nodes.
void choose(const char* condition, const Parameters& parameters, const Chosen& chosen) {
    pg::AsOwner frame = pg::begin_as_owner(store::kRecordTable);
    DestReceiver* receiver = CreateDestReceiver(DestTuplestore);
    SetTuplestoreDestReceiverParams(receiver, chosen.rows, frame.caller_context, true, nullptr,
                                    nullptr);
    SPIExecuteOptions options{};
    options.params = parameters.list;
    options.read_only = true;
    options.dest = receiver;
    int code = SPI_execute_extended(
        psprintf("SELECT scope, principal, key, claimed_at FROM idempotency.record WHERE %s"
                 " ORDER BY claimed_at",
                 condition),
        &options);
    if (code != SPI_OK_SELECT) elog(ERROR, "idempotency: the records could not be chosen");
    pg::end_as_owner(frame);
}

// ---- in batches ----

void settle_each(const Chosen& chosen, const Step& step, Place place, int batch, Tally* tally) {
    MemoryContext outer = CurrentMemoryContext;
    MemoryContext context = AllocSetContextCreate(outer, "idempotency step", ALLOCSET_SMALL_SIZES);
    TupleTableSlot* row = MakeSingleTupleTableSlot(chosen.columns, &TTSOpsMinimalTuple);
    tally->total += tuplestore_tuple_count(chosen.rows);
    while (tuplestore_gettupleslot(chosen.rows, true, false, row)) {
        CHECK_FOR_INTERRUPTS();
        slot_getallattrs(row);
        place(step, row->tts_values);
        MemoryContextSwitchTo(context);
        step.call->isnull = false;
        text* word = DatumGetTextPP(FunctionCallInvoke(step.call));
        count_record(tally, word, row->tts_values);
        MemoryContextSwitchTo(outer);
        MemoryContextReset(context);
        if (tally->seen % batch == 0) commit_batch();
        tell_progress(tally);
    }
    commit_batch();
    ExecDropSingleTupleTableSlot(row);
}

}  // namespace

void require_own_transactions(FunctionCallInfo fcinfo, const char* procedure) {
    auto* context = reinterpret_cast<CallContext*>(fcinfo->context);
    if (context == nullptr || !IsA(context, CallContext) || context->atomic)
        ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
                        errmsg("%s cannot run inside a transaction block", procedure),
                        errdetail("It commits after each batch."),
                        errhint("CALL it in a statement of its own, with autocommit on.")));
    pg::require_writable(procedure);
}

int batch_size(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) raise_null("batch_size");
    std::int32_t size = PG_GETARG_INT32(arg);
    if (size < 1 || size > kLargestBatch) raise_number("batch_size", size, 1, kLargestBatch);
    return size;
}

Step step_of(FunctionCallInfo fcinfo, const char* name) {
    auto* function = static_cast<FmgrInfo*>(palloc0(sizeof(FmgrInfo)));
    fmgr_info(pg::own_function(get_func_namespace(fcinfo->flinfo->fn_oid), name), function);
    auto count = static_cast<std::int16_t>(function->fn_nargs);
    auto* call = static_cast<FunctionCallInfo>(palloc0(SizeForFunctionCallInfo(count)));
    InitFunctionCallInfoData(*call, function, count, DEFAULT_COLLATION_OID, nullptr, nullptr);
    for (int i = 0; i < count; i++) call->args[i].isnull = true;
    return {call};
}

void set_argument(const Step& step, int arg, Datum value) {
    step.call->args[arg] = {value, false};
}

void pass_argument(const Step& step, int arg, FunctionCallInfo fcinfo, int from) {
    step.call->args[arg] = fcinfo->args[from];
}

Parameters room_for(int count) {
    return {makeParamList(count), 0};
}

void add_parameter(Parameters* parameters, Oid type, NullableDatum value) {
    parameters->list->params[parameters->count++] = {value.value, value.isnull, PARAM_FLAG_CONST,
                                                     type};
}

void settle_all(const char* condition, const Parameters& parameters, const Step& step, Place place,
                int batch, Tally* tally) {
    const Chosen chosen = nothing_chosen();
    // The rows may be in a file that no transaction closes, so errors are caught to free it.
    PG_TRY();
    {
        choose(condition, parameters, chosen);
        settle_each(chosen, step, place, batch, tally);
    }
    PG_CATCH();
    {
        tuplestore_end(chosen.rows);
        PG_RE_THROW();
    }
    PG_END_TRY();
    tuplestore_end(chosen.rows);
}

void commit_batch() {
    SPI_commit();
    // The next transaction needs a snapshot, like any statement.
    EnsurePortalSnapshotExists();
}

void connect_to_commit() {
    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
        elog(ERROR, "idempotency: SPI_connect failed");
}

Datum end_with_row(FunctionCallInfo fcinfo, const Datum* values) {
    pg::check_called(fcinfo->flinfo->fn_oid);
    TupleDesc desc;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "idempotency: a procedure without a result");
    auto* nulls = static_cast<bool*>(palloc0(sizeof(bool) * static_cast<Size>(desc->natts)));
    Datum row =
        HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), const_cast<Datum*>(values), nulls));
    Datum result = SPI_datumTransfer(row, false, -1);
    (void)SPI_finish();
    return result;
}

}  // namespace idem::operate
