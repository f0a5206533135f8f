// The keys of encrypted records: their list, the records that each has sealed, verifying and
// resealing them; the trigger of the keys in use.

#include "api/arguments.hpp"
#include "claim/audit.hpp"
#include "claim/reseal.hpp"
#include "claim/sealing.hpp"
#include "config/encryption_keys.hpp"
#include "operate/batches.hpp"
#include "operate/nodes.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"
#include "pg/owner.hpp"
#include "store/key_use.hpp"
#include "store/sealed_rows.hpp"
#include "store/store.hpp"

namespace idem::operate {

using namespace api;

namespace {

// ---- the list of keys ----

struct KeyRow {
    text* id;  // nullptr: the file has no keys
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

List* add_records_here(List* rows, const char* why) {
    int tables;
    store::SealedTable* table = store::local_sealed_tables(&tables);
    for (int i = 0; i < tables; i++) {
        int keys;
        store::SealedBy* sealed = store::sealed_rows(table[i], &keys);
        for (int k = 0; k < keys; k++) {
            KeyRow* row = row_of(rows, pg::bytes_of(sealed[k].key_id));
            if (row != nullptr)
                row->records += sealed[k].rows;
            else
                rows = add_row(rows, {sealed[k].key_id, false, false, sealed[k].rows, why});
        }
    }
    return rows;
}

// idempotency.keys_here(): id, available, current, records, why. A row for each key of the key
// file, and for each missing key that has sealed records. A key under an id that belonged to
// another one is not available. Without a usable file, one row says why.
Datum keys_here(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    const char* why = nullptr;
    core::KeyRing* ring = config::encryption_keys(&why);
    List* rows = NIL;
    std::string_view id;
    for (std::size_t i = 0; ring != nullptr && !(id = core::key_id_at(*ring, i)).empty(); i++) {
        bool is_current = id == core::current_key_id(*ring);
        bool is_other = store::use_of_key(id, core::key_check(*ring, id)) == store::KeyUse::Other;
        const char* fault =
            is_other ? "This database has used another key under this id." : nullptr;
        rows = add_row(rows, {pg::make_text(id), !is_other, is_current, 0, fault});
    }
    if (ring == nullptr) put_row(result, {nullptr, false, false, 0, why});
    rows = add_records_here(rows, ring == nullptr ? why : "The key file has no key with this id.");
    ListCell* cell;
    foreach (cell, rows) put_row(result, *static_cast<KeyRow*>(lfirst(cell)));
    return 0;
}

// ---- a walk over sealed rows ----

// The place of a row, in the current memory context.
store::Record place_of(const store::Record& row) {
    auto kept = [](const text* value) { return static_cast<text*>(pg::copy_varlena(value)); };
    store::Record place{};
    place.id = {kept(row.id.scope), kept(row.id.principal), kept(row.id.key), 0};
    place.token = row.token;
    return place;
}

// Calls take(rows, count) with each batch of a table's rows that other keys than `key_id` have
// sealed, in a memory context that is reset afterwards. What is to last belongs into the caller's.
// `take` may commit. `lock`: see next_sealed_otherwise.
template <typename Take>
void walk_sealed(const store::SealedTable& table, text* key_id, int batch, bool lock, Take take) {
    MemoryContext walk = CurrentMemoryContext;
    MemoryContext each = AllocSetContextCreate(walk, "idempotency sealing", ALLOCSET_DEFAULT_SIZES);
    store::Record last{};
    last.id = {cstring_to_text(""), cstring_to_text(""), cstring_to_text(""), 0};
    for (int count = batch; count == batch;) {
        MemoryContextSwitchTo(each);
        auto* rows = static_cast<store::Record*>(palloc(sizeof(store::Record) * batch));
        count = store::next_sealed_otherwise(table, key_id, last, batch, lock, rows);
        MemoryContextSwitchTo(walk);
        if (count > 0) last = place_of(rows[count - 1]);
        MemoryContextSwitchTo(each);
        take(rows, count);
        MemoryContextSwitchTo(walk);
        MemoryContextReset(each);
    }
    MemoryContextDelete(each);
}

// ---- verifying ----

// The rows that a key has sealed, and the first that did not open.
struct Verified {
    text* key_id;
    std::int64_t records;
    std::int64_t unopened;
    store::Identity first;
    const char* why;
};

Verified* verified_of(List** sums, const text* key_id) {
    ListCell* cell;
    foreach (cell, *sums) {
        auto* sum = static_cast<Verified*>(lfirst(cell));
        if (pg::bytes_of(sum->key_id) == pg::bytes_of(key_id)) return sum;
    }
    auto* sum = static_cast<Verified*>(palloc0(sizeof(Verified)));
    sum->key_id = static_cast<text*>(pg::copy_varlena(key_id));
    *sums = lappend(*sums, sum);
    return sum;
}

// `kept` outlasts the row.
void verify_row(store::Record* row, MemoryContext kept, List** sums) {
    const char* why = claim::why_closed(row);
    MemoryContext batch = MemoryContextSwitchTo(kept);
    Verified* sum = verified_of(sums, row->sealed_by);
    sum->records++;
    if (why != nullptr && sum->unopened++ == 0) {
        sum->first = place_of(*row).id;
        sum->why = pstrdup(why);
    }
    MemoryContextSwitchTo(batch);
}

// A record that has gone meanwhile is not counted.
void verify_table(const store::SealedTable& table, List** sums) {
    constexpr int kAtOnce = 200;
    MemoryContext kept = CurrentMemoryContext;
    bool whole = store::has_attempts(table);
    text* no_key = cstring_to_text("");
    walk_sealed(table, no_key, kAtOnce, /* lock */ false, [&](store::Record* rows, int count) {
        for (int i = 0; i < count; i++) {
            CHECK_FOR_INTERRUPTS();
            store::Record record{};
            if (!whole && !store::find(rows[i].id, &record).found) continue;
            store::Record* row = whole ? &rows[i] : &record;
            if (row->sealed_by != nullptr) verify_row(row, kept, sums);
        }
    });
}

void put_verified(ReturnSetInfo* result, const Verified& sum) {
    bool all_open = sum.unopened == 0;
    Datum values[] = {PointerGetDatum(sum.key_id),
                      Int64GetDatum(sum.records),
                      Int64GetDatum(sum.unopened),
                      PointerGetDatum(sum.first.scope),
                      PointerGetDatum(sum.first.principal),
                      PointerGetDatum(sum.first.key),
                      all_open ? 0 : CStringGetTextDatum(sum.why)};
    bool nulls[] = {false, false, false, all_open, all_open, all_open, all_open};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

// idem_verify_sealed(): key_id, records, unopened, scope, principal, key, why. Opens each sealed
// value of this node. It writes nothing, so it works on a standby.
Datum verify_sealed(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    int count;
    const store::SealedTable* tables = store::local_sealed_tables(&count);
    List* sums = NIL;
    for (int i = 0; i < count; i++) verify_table(tables[i], &sums);
    ListCell* cell;
    foreach (cell, sums) put_verified(result, *static_cast<Verified*>(lfirst(cell)));
    return 0;
}

// ---- resealing ----

void reseal_table(const store::SealedTable& table, text* key_id, int batch, claim::Resealed* sum) {
    walk_sealed(table, key_id, batch, /* lock */ true, [&](store::Record* rows, int count) {
        claim::Resealed more = claim::reseal_rows(table, rows, count);
        *sum = {sum->done + more.done, sum->unopened + more.unopened};
        commit_batch();
        auto done = static_cast<unsigned long>(sum->done);
        if (count > 0)
            ereport(NOTICE, (errmsg_plural("%lu record has been encrypted again",
                                           "%lu records have been encrypted again", done, done)));
    });
}

void report(const claim::Resealed& sum, std::int64_t left) {
    auto unopened = static_cast<unsigned long>(sum.unopened);
    if (unopened > 0)
        ereport(WARNING,
                (errmsg_plural("%lu record could not be decrypted, and is left unchanged",
                               "%lu records could not be decrypted, and are left unchanged",
                               unopened, unopened),
                 errdetail("The key is not in the key file, or is not the one that encrypted the "
                           "value, or the row was changed.")));
    unsigned long in_use = static_cast<unsigned long>(Max(left - sum.unopened, 0));
    if (in_use > 0)
        ereport(NOTICE,
                (errmsg_plural("%lu record was in use", "%lu records were in use", in_use, in_use),
                 errhint("Call idem_reseal again.")));
}

// Records which key replaces others. The row for the beginning commits with the first batch:
// however the call ends, every resealed record has an audited decision. The row for the end has the
// counts, done and left.
void audit_reseal(const text* key_id, const claim::Resealed* sum, std::int64_t left) {
    claim::Audited what{};
    what.action = "reseal";
    pg::JsonbObject after = pg::begin_object();
    pg::add_member(&after, "key", pg::bytes_of(key_id));
    if (sum != nullptr) {
        pg::add_member(&after, "sealed", sum->done);
        pg::add_member(&after, "remaining", left);
    }
    what.after = pg::end_object(&after);
    claim::audit(what);
}

// Reseals the tables of this node. Returns the number of rows left.
std::int64_t reseal_here(int batch) {
    text* key_id = claim::current_key(store::make_identity(cstring_to_text(""), nullptr, nullptr));
    int count;
    const store::SealedTable* tables = store::local_sealed_tables(&count);
    claim::Resealed sum{};
    audit_reseal(key_id, nullptr, 0);
    for (int i = 0; i < count; i++) reseal_table(tables[i], key_id, batch, &sum);
    std::int64_t left = 0;
    for (int i = 0; i < count; i++) left += store::sealed_otherwise(tables[i], key_id);
    audit_reseal(key_id, &sum, left);
    report(sum, left);
    return left;
}

char* reseal_statement(std::int64_t, void* argument) {
    auto* call = static_cast<FunctionCallInfo>(argument);
    Oid procedure = call->flinfo->fn_oid;
    // With the types of its arguments, so that no procedure of a user matches better.
    return psprintf("CALL %s(%lld::pg_catalog.int8, NULL::pg_catalog.int8)",
                    quote_qualified_identifier(get_namespace_name(get_func_namespace(procedure)),
                                               get_func_name(procedure)),
                    static_cast<long long>(bigint_or_none(call, 0).value_or(1)));
}

// idem_reseal(batch, INOUT remaining)
Datum reseal(FunctionCallInfo fcinfo) {
    std::int64_t batch = bigint_or_none(fcinfo, 0).value_or(kLargestBatch + 1);
    if (batch < 1 || batch > kLargestBatch) raise_number("batch", batch, 1, kLargestBatch);
    require_own_transactions(fcinfo, "idem_reseal()");
    connect_to_commit();
    Datum left = Int64GetDatum(asks_other_nodes() ? sum_of_nodes(reseal_statement, fcinfo)
                                                  : reseal_here(static_cast<int>(batch)));
    return end_with_row(fcinfo, &left);
}

// ---- idempotency.encryption_key ----

// Its trigger, after each row and after TRUNCATE.
Datum changed(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    store::announce_key_change();
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_keys_here, idem::operate::keys_here);
IDEM_FUNCTION(idem_administrator_verify_sealed, idem::operate::verify_sealed);
IDEM_FUNCTION(idem_administrator_reseal, idem::operate::reseal);
IDEM_FUNCTION(idem_key_changed, idem::operate::changed);
