// The keys of encrypted records: which there are, what they have sealed, and sealing anew.

#include "api/arguments.hpp"
#include "api/nodes.hpp"
#include "claim/audit.hpp"
#include "claim/reseal.hpp"
#include "claim/sealing.hpp"
#include "config/encryption_keys.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"
#include "pg/owner.hpp"
#include "store/sealed_rows.hpp"

namespace idem::api {

namespace {

// ---- what there is ----

struct KeyRow {
    text* id;  // nullptr: there are no keys
    bool available;
    bool current;
    std::int64_t records;
    const char* why;  // it is not available
};

void put_row(ReturnSetInfo* result, const KeyRow& row) {
    Datum values[] = {PointerGetDatum(row.id), BoolGetDatum(row.available),
                      BoolGetDatum(row.current), Int64GetDatum(row.records),
                      row.why == nullptr ? 0 : CStringGetTextDatum(row.why)};
    bool nulls[] = {row.id == nullptr, false, false, false, row.why == nullptr};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

KeyRow* row_of(List* rows, std::string_view id) {
    ListCell* cell;
    foreach (cell, rows) {
        auto* row = static_cast<KeyRow*>(lfirst(cell));
        if (pg::bytes_of(row->id) == id) return row;
    }
    return nullptr;
}

List* add_row(List* rows, const KeyRow& row) {
    auto* copy = static_cast<KeyRow*>(palloc(sizeof(KeyRow)));
    *copy = row;
    return lappend(rows, copy);
}

List* rows_of_file(const core::KeyRing& ring) {
    List* rows = NIL;
    std::string_view id;
    for (std::size_t i = 0; !(id = core::key_id_at(ring, i)).empty(); i++)
        rows =
            add_row(rows, {pg::make_text(id), true, id == core::current_key_id(ring), 0, nullptr});
    return rows;
}

List* add_records(List* rows, const store::SealedBy& sealed, const char* why) {
    KeyRow* row = row_of(rows, pg::bytes_of(sealed.key_id));
    if (row == nullptr) return add_row(rows, {sealed.key_id, false, false, sealed.rows, why});
    row->records += sealed.rows;
    return rows;
}

List* add_records_here(List* rows, const char* why) {
    int tables;
    store::SealedTable* table = store::local_sealed_tables(&tables);
    for (int i = 0; i < tables; i++) {
        int keys;
        store::SealedBy* sealed = store::sealed_rows(table[i], &keys);
        for (int k = 0; k < keys; k++) rows = add_records(rows, sealed[k], why);
    }
    return rows;
}

// idempotency.keys_here(): a row for each key of the key file, and of those that have sealed
// records and are not in it: id, available, current, records, why. Without a file that can be used
// a row says so.
Datum keys_here(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    const char* why = nullptr;
    const core::KeyRing* ring = config::encryption_keys(&why);
    List* rows = ring == nullptr ? NIL : rows_of_file(*ring);
    if (ring == nullptr) put_row(result, {nullptr, false, false, 0, why});
    rows = add_records_here(rows, ring == nullptr ? why : "The key file has no key with this id.");
    ListCell* cell;
    foreach (cell, rows) put_row(result, *static_cast<KeyRow*>(lfirst(cell)));
    return 0;
}

// ---- sealing anew ----

constexpr std::int64_t kMostRows = 10000;

// How far a walk over a table has come.
struct Progress {
    std::int64_t done;
    std::int64_t unopened;
};

void reseal_each(const store::Identity* ids, int count, Progress* progress) {
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        switch (claim::reseal_record(ids[i])) {
            case claim::Resealed::Done:
                progress->done++;
                break;
            case claim::Resealed::Unopened:
                progress->unopened++;
                break;
            case claim::Resealed::Nothing:
            case claim::Resealed::Busy:
                break;
        }
    }
}

void report_progress(const Progress& progress) {
    auto done = static_cast<unsigned long>(progress.done);
    ereport(NOTICE, (errmsg_plural("%lu record has been sealed anew",
                                   "%lu records have been sealed anew", done, done)));
}

// What is kept from one transaction to the next lies in the current memory context, which outlasts
// them; all else in one of its own, which is emptied after each.
void reseal_records(const store::SealedTable& table, text* key_id, int batch, Progress* progress) {
    MemoryContext walk = CurrentMemoryContext;
    MemoryContext each = AllocSetContextCreate(walk, "idempotency sealing", ALLOCSET_DEFAULT_SIZES);
    auto* ids = static_cast<store::Identity*>(palloc(sizeof(store::Identity) * batch));
    store::Identity last{cstring_to_text(""), cstring_to_text(""), cstring_to_text(""), 0};
    for (int count = batch; count == batch;) {
        MemoryContextSwitchTo(each);
        count = store::next_sealed_otherwise(table, key_id, last, batch, ids);
        reseal_each(ids, count, progress);
        MemoryContextSwitchTo(walk);
        if (count > 0)
            last = {static_cast<text*>(pg::copy_varlena(ids[count - 1].scope)),
                    static_cast<text*>(pg::copy_varlena(ids[count - 1].principal)),
                    static_cast<text*>(pg::copy_varlena(ids[count - 1].key)), 0};
        SPI_commit();
        MemoryContextReset(each);
        if (count > 0) report_progress(*progress);
    }
    MemoryContextDelete(each);
}

text* kept(const text* value) {
    return static_cast<text*>(pg::copy_varlena(value));
}

// Likewise.
void reseal_attempts(const store::SealedTable& table, text* key_id, int batch, Progress* progress) {
    MemoryContext walk = CurrentMemoryContext;
    MemoryContext each = AllocSetContextCreate(walk, "idempotency sealing", ALLOCSET_DEFAULT_SIZES);
    store::Record last{};
    last.id = {cstring_to_text(""), cstring_to_text(""), cstring_to_text(""), 0};
    for (int count = batch; count == batch;) {
        MemoryContextSwitchTo(each);
        auto* rows = static_cast<store::Record*>(palloc(sizeof(store::Record) * batch));
        count = store::next_attempts_sealed_otherwise(table, key_id, last, batch, rows);
        MemoryContextSwitchTo(walk);
        if (count > 0) {
            const store::Record& end = rows[count - 1];
            last.id = {kept(end.id.scope), kept(end.id.principal), kept(end.id.key), 0};
            last.token = end.token;
        }
        MemoryContextSwitchTo(each);
        int done = claim::reseal_attempts(table, rows, count);
        progress->done += done;
        progress->unopened += count - done;
        MemoryContextSwitchTo(walk);
        SPI_commit();
        MemoryContextReset(each);
        if (count > 0) report_progress(*progress);
    }
    MemoryContextDelete(each);
}

void reseal_table(const store::SealedTable& table, text* key_id, int batch, Progress* progress) {
    if (store::has_attempts(table))
        reseal_attempts(table, key_id, batch, progress);
    else
        reseal_records(table, key_id, batch, progress);
}

std::int64_t left_in(const store::SealedTable* tables, int count, text* key_id) {
    std::int64_t left = 0;
    for (int i = 0; i < count; i++) left += store::sealed_otherwise(tables[i], key_id);
    return left;
}

void report(const Progress& progress, std::int64_t left) {
    auto unopened = static_cast<unsigned long>(progress.unopened);
    if (unopened > 0)
        ereport(WARNING,
                (errmsg_plural("%lu record could not be opened, and is left as it is",
                               "%lu records could not be opened, and are left as they are",
                               unopened, unopened),
                 errdetail("The key is not in the key file, or is another one than then, or the "
                           "row has been changed.")));
    unsigned long in_use = static_cast<unsigned long>(Max(left - progress.unopened, 0));
    if (in_use > 0)
        ereport(NOTICE,
                (errmsg_plural("%lu record was in use", "%lu records were in use", in_use, in_use),
                 errhint("Call idem_reseal again.")));
}

// Of the tables that this node has. Answers how many are left.
std::int64_t reseal_here(int batch) {
    text* key_id = claim::current_key(store::make_identity(cstring_to_text(""), nullptr, nullptr));
    int count;
    const store::SealedTable* tables = store::local_sealed_tables(&count);
    Progress progress{};
    for (int i = 0; i < count; i++) reseal_table(tables[i], key_id, batch, &progress);
    std::int64_t left = left_in(tables, count, key_id);
    report(progress, left);
    return left;
}

char* reseal_statement(std::int64_t, void* argument) {
    auto* call = static_cast<FunctionCallInfo>(argument);
    Oid procedure = call->flinfo->fn_oid;
    return psprintf("CALL %s(%lld)",
                    quote_qualified_identifier(get_namespace_name(get_func_namespace(procedure)),
                                               get_func_name(procedure)),
                    static_cast<long long>(bigint_or_none(call, 0).value_or(1)));
}

Datum remaining_row(FunctionCallInfo fcinfo, std::int64_t left) {
    TupleDesc shape;
    if (get_call_result_type(fcinfo, nullptr, &shape) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "idempotency: idem_reseal is not the procedure this library knows");
    Datum value = Int64GetDatum(left);
    bool null = false;
    return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(shape), &value, &null));
}

// With the last batch: which key has taken the place of others, and how much is left to do.
void audit_reseal(std::int64_t left) {
    claim::Audited what{};
    what.action = "reseal";
    pg::JsonbObject after = pg::begin_object();
    pg::add_member(&after, "remaining", left);
    what.after = pg::end_object(&after);
    claim::audit(what);
}

// A connection to SPI that may commit, if CALL is not part of a transaction.
std::int64_t reseal_in_batches(int batch) {
    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
        elog(ERROR, "idempotency: SPI_connect failed");
    std::int64_t left = reseal_here(batch);
    audit_reseal(left);
    (void)SPI_finish();
    return left;
}

bool is_atomic(FunctionCallInfo fcinfo) {
    return fcinfo->context == nullptr || !IsA(fcinfo->context, CallContext) ||
           castNode(CallContext, fcinfo->context)->atomic;
}

// idem_reseal(batch, INOUT remaining)
Datum reseal(FunctionCallInfo fcinfo) {
    std::int64_t batch = bigint_or_none(fcinfo, 0).value_or(kMostRows + 1);
    if (batch < 1 || batch > kMostRows) raise_number("batch", batch, 1, kMostRows);
    pg::require_writable("idem_reseal()");
    if (is_atomic(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
                        errmsg("idem_reseal cannot be called within a transaction"),
                        errdetail("It commits after each batch."),
                        errhint("Call it in a statement of its own.")));
    if (asks_other_nodes()) return remaining_row(fcinfo, sum_of_nodes(reseal_statement, fcinfo));
    return remaining_row(fcinfo, reseal_in_batches(static_cast<int>(batch)));
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_keys_here, idem::api::keys_here);
IDEM_FUNCTION(idem_operator_reseal, idem::api::reseal);
