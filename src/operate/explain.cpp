// idem_explain: the result of claim::explain as a row for people and programs. Its objects omit
// what does not apply.

#include "claim/explain.hpp"
#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "api/types.hpp"
#include "claim/sealing.hpp"
#include "claim/state.hpp"
#include "config/policy_in_force.hpp"
#include "config/settings.hpp"
#include "operate/nodes.hpp"
#include "pg/boundary.hpp"
#include "pg/installed.hpp"
#include "pg/jsonb.hpp"
#include "pg/statements.hpp"
#include "store/record_table.hpp"

namespace idem::operate {

using namespace api;

namespace {

using claim::Explanation;
using pg::JsonbObject;

void add_text(JsonbObject* object, std::string_view name, const text* value) {
    if (value != nullptr) pg::add_member(object, name, pg::bytes_of(value));
}

void add_time(JsonbObject* object, std::string_view name, TimestampTz time) {
    if (!TIMESTAMP_NOT_FINITE(time)) pg::add_moment(object, name, time);
}

// ---- record ----

const store::Record* record_of(const Explanation& explanation) {
    const claim::Answer& seen = explanation.forecast.seen;
    return seen.has_record ? &seen.record : nullptr;
}

void add_opened(const store::Record& record, JsonbObject* object) {
    add_text(object, "holder", claim::opened(record, &store::Record::holder));
    add_text(object, "recovery_point", claim::opened(record, &store::Record::recovery_point));
    if (const bytea* body = claim::opened(record, &store::Record::body)) {
        Size bytes = toast_raw_datum_size(PointerGetDatum(body)) - VARHDRSZ;
        pg::add_member(object, "body_bytes", static_cast<std::int64_t>(bytes));
    }
    add_text(object, "error", claim::opened(record, &store::Record::error));
    add_text(object, "reference", claim::opened(record, &store::Record::reference));
}

// Without requests and answers, which belong to the client.
Jsonb* record_object(const store::Record& record, TimestampTz due_at, bool closed) {
    JsonbObject object = pg::begin_object();
    pg::add_member(&object, "status", core::entry_of(record.status).word);
    pg::add_member(&object, "attempt", record.attempt);
    add_time(&object, "created_at", record.created_at);
    add_time(&object, "claimed_at", record.claimed_at);
    add_time(&object, "finished_at", record.finished_at);
    add_time(&object, "next_attempt_at", record.next_attempt_at);
    add_time(&object, "due_at", due_at);
    add_time(&object, "expires_at", record.expires_at);
    add_time(&object, "retained_until", record.retained_until);
    // A sweeper removes a record with a result after its retention; a record without one never.
    bool is_removed = record.finished_at != pg::kNoTime && record.status != core::Status::Unknown &&
                      !TIMESTAMP_NOT_FINITE(record.retained_until);
    if (is_removed)
        add_time(&object, "removable_at",
                 pg::after(record.retained_until, config::cleanup_grace * core::kSecond));
    if (!closed) add_opened(record, &object);
    add_text(&object, "operation", record.operation);
    if (record.status_code) pg::add_member(&object, "status_code", *record.status_code);
    if (record.body_omitted) pg::add_flag(&object, "body_omitted", true);
    add_text(&object, "resolved_by", record.resolved_by);
    return pg::end_object(&object);
}

// ---- lease ----

Jsonb* lease_object(const Explanation& explanation, const store::Record& record) {
    TimestampTz now = explanation.forecast.now;
    JsonbObject object = pg::begin_object();
    pg::add_seconds(&object, "seconds", record.lease);
    pg::add_moment(&object, "until", record.lease_until);
    pg::add_seconds(&object, "left", Max(record.lease_until - now, 0));
    pg::add_seconds(&object, "overdue", Max(now - record.lease_until, 0));
    pg::add_flag(&object, "held", record.backend_pid != 0);
    if (record.backend_pid != 0 && !RecoveryInProgress())
        pg::add_flag(&object, "session_lives", claim::session_lives(record));
    if (explanation.given_up_at != pg::kNoTime)
        pg::add_moment(&object, "given_up_at", explanation.given_up_at);
    return pg::end_object(&object);
}

// ---- holder ----

// The columns of pg_stat_activity that the caller may see about a backend. No query.
constexpr const char* kActivity =
    "SELECT a.application_name, a.usename, a.state, a.xact_start, a.query_start"
    " FROM pg_catalog.pg_stat_activity a WHERE a.pid = $1";
constexpr const char* kPrepared =
    "SELECT p.gid, p.owner, p.prepared FROM pg_catalog.pg_prepared_xacts p"
    " WHERE p.transaction = $1";

// Fetches at most one row; needs an SPI connection.
bool find_row(const char* query, Oid type, Datum value) {
    if (SPI_execute_with_args(query, 1, &type, &value, nullptr, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: could not execute \"%s\"", query);
    return SPI_processed == 1;
}

void add_found_text(JsonbObject* object, const char* name, int column) {
    const char* value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
    if (value != nullptr && *value != '\0') pg::add_member(object, name, value);
}

// Adds a time and its age.
void add_found_time(JsonbObject* object, const char* name, const char* age, int column,
                    TimestampTz now) {
    bool is_null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &is_null);
    if (is_null) return;
    pg::add_moment(object, name, DatumGetTimestampTz(value));
    pg::add_seconds(object, age, Max(now - DatumGetTimestampTz(value), 0));
}

// The server keeps statuses of backends for the transaction after the first read.
void add_activity(JsonbObject* object, std::int32_t pid) {
    pgstat_clear_backend_activity_snapshot();
    TimestampTz now = GetCurrentTimestamp();
    if (!find_row(kActivity, INT4OID, Int32GetDatum(pid))) return;
    add_found_text(object, "application_name", 1);
    add_found_text(object, "user", 2);
    add_found_text(object, "state", 3);
    add_found_time(object, "since", "age", 4, now);
    add_found_time(object, "query_since", "query_age", 5, now);
}

// Copies the object out: SPI frees its memory.
Jsonb* end_within_spi(JsonbObject* object, MemoryContext context) {
    Jsonb* result = pg::end_object(object);
    MemoryContext spi_context = MemoryContextSwitchTo(context);
    auto* copy = static_cast<Jsonb*>(pg::copy_varlena(result));
    MemoryContextSwitchTo(spi_context);
    return copy;
}

Jsonb* transaction_object(const claim::KeyHolder& holder) {
    MemoryContext context = CurrentMemoryContext;
    Jsonb* result = nullptr;
    pg::run([&] {
        JsonbObject object = pg::begin_object();
        bool on_primary = holder.pid == 0 && RecoveryInProgress();
        pg::add_member(&object, "kind",
                       holder.is_own                           ? "this_transaction"
                       : TransactionIdIsValid(holder.prepared) ? "prepared"
                       : on_primary                            ? "primary"
                                                               : "transaction");
        if (holder.pid != 0) pg::add_member(&object, "pid", holder.pid);
        if (holder.waiting > 0) pg::add_member(&object, "waiting", holder.waiting);
        if (holder.pid != 0) add_activity(&object, holder.pid);
        if (TransactionIdIsValid(holder.prepared) &&
            find_row(kPrepared, XIDOID, TransactionIdGetDatum(holder.prepared))) {
            add_found_text(&object, "gid", 1);
            add_found_text(&object, "user", 2);
            add_found_time(&object, "since", "age", 3, GetCurrentTimestamp());
        }
        result = end_within_spi(&object, context);
    });
    return result;
}

// The transaction that has the key, or else the session that holds its lease.
Jsonb* holder_object(const Explanation& explanation) {
    if (explanation.forecast.holder.exists) return transaction_object(explanation.forecast.holder);
    const store::Record* record = record_of(explanation);
    if (record == nullptr || RecoveryInProgress() || !claim::session_lives(*record)) return nullptr;
    MemoryContext context = CurrentMemoryContext;
    Jsonb* result = nullptr;
    pg::run([&] {
        JsonbObject object = pg::begin_object();
        pg::add_member(&object, "kind", "session");
        pg::add_member(&object, "pid", record->backend_pid);
        add_activity(&object, record->backend_pid);
        result = end_within_spi(&object, context);
    });
    return result;
}

// ---- request ----

constexpr int kLargestValue = 8 * 1024;  // bytes, as the server keeps it

const char* word_of(request::Change change) {
    switch (change) {
        case request::Change::Changed:
            return "changed";
        case request::Change::Added:
            return "added";
        case request::Change::Missing:
            break;
    }
    return "missing";
}

int size_of(const JsonbValue& value) {
    switch (value.type) {
        case jbvString:
            return value.val.string.len;
        case jbvNumeric:
            return static_cast<int>(VARSIZE_ANY(value.val.numeric));
        case jbvBinary:
            return value.val.binary.len;
        default:
            return 0;
    }
}

void add_shown(JsonbObject* object, const char* name, JsonbValue value) {
    if (size_of(value) > kLargestValue) return;
    JsonbValue key{};
    key.type = jbvString;
    key.val.string.val = const_cast<char*>(name);
    key.val.string.len = static_cast<int>(strlen(name));
    pg::add_member(object, &key, &value);
}

Jsonb* difference_object(const request::Difference& difference, bool show_values) {
    JsonbObject object = pg::begin_object();
    add_text(&object, "path", difference.path);
    pg::add_member(&object, "how", word_of(difference.change));
    if (show_values && difference.change != request::Change::Added)
        add_shown(&object, "stored", difference.stored);
    if (show_values && difference.change != request::Change::Missing)
        add_shown(&object, "given", difference.given);
    return pg::end_object(&object);
}

Jsonb* names_array(ArrayType* names) {
    pg::TextList list = pg::text_list(names, "fields");
    pg::JsonbArray array = pg::begin_array();
    for (std::size_t i = 0; i < list.count; i++) pg::add_element(&array, list.items[i]);
    return pg::end_array(&array);
}

Jsonb* request_object(const Explanation& explanation, const store::Record& record,
                      bool show_values) {
    JsonbObject object = pg::begin_object();
    if (explanation.same) pg::add_flag(&object, "same", *explanation.same);
    bool digest = explanation.incomparable == claim::Incomparable::Digest;
    if (explanation.incomparable != claim::Incomparable::No)
        pg::add_member(&object, "not_comparable", digest ? "digest" : "method_and_path");
    pg::add_flag(&object, "stored", !record.request.is_null());
    if (record.counted != nullptr) pg::add_member(&object, "counted", names_array(record.counted));
    if (record.excluded != nullptr)
        pg::add_member(&object, "left_out", names_array(record.excluded));
    if (const request::Differences* differences = explanation.differences) {
        pg::JsonbArray array = pg::begin_array();
        for (int i = 0; i < differences->count; i++)
            pg::add_element(&array, difference_object(differences->list[i], show_values));
        pg::add_member(&object, "differ", pg::end_array(&array));
        pg::add_flag(&object, "more", differences->more);
    }
    return pg::end_object(&object);
}

// ---- policy ----

// Numbers and flags as such, all others as the server prints them.
Jsonb* option_object(const config::OptionInForce& option) {
    JsonbObject object = pg::begin_object();
    const char* value = option.value;
    if (value != nullptr && option.type == core::OptionType::Flag)
        pg::add_flag(&object, "value", strcmp(value, "true") == 0);
    else if (value != nullptr && option.type == core::OptionType::Number)
        pg::add_member(&object, "value", pg_strtoint64(value));
    else if (value != nullptr)
        pg::add_member(&object, "value", value);
    pg::add_member(&object, "source", config::word_of(option.source));
    if (option.origin != nullptr) pg::add_member(&object, "origin", option.origin);
    return pg::end_object(&object);
}

// ---- notes ----

struct Notes {
    Datum list[8];
    int count;
};

void note(Notes* notes, const char* sentence) {
    notes->list[notes->count++] = CStringGetTextDatum(sentence);
}

void note_what_is_not_seen(const Explanation& explanation, Notes* notes) {
    if (RecoveryInProgress())
        note(notes,
             "This is a standby: transactions of the primary that hold the key and sessions of "
             "claims with hold cannot be seen here.");
    const claim::KeyHolder& holder = explanation.forecast.holder;
    if (holder.exists && !holder.is_own && record_of(explanation) != nullptr)
        note(notes,
             "The record is the newest committed one; the transaction that holds the key may "
             "replace it.");
}

void note_what_was_asked(const Explanation& explanation, Notes* notes) {
    const claim::Settled& question = explanation.question;
    if (question.fingerprint == nullptr && record_of(explanation) != nullptr)
        note(notes,
             "The call has no request and no fingerprint, so the request is assumed to be the "
             "record's.");
    if (explanation.incomparable == claim::Incomparable::Digest)
        note(notes,
             "One of the two fingerprints is a digest from the caller, so they cannot be compared, "
             "and the request is assumed to be the record's.");
    if (explanation.incomparable == claim::Incomparable::MethodAndPath)
        note(notes,
             "Only one of the two fingerprints has a method or path, so they cannot be compared, "
             "and the request is assumed to be the record's.");
    if (explanation.lacks_fingerprint)
        note(notes,
             "Here, idem_begin refuses a call without request and fingerprint "
             "(fingerprint_required).");
    bool waits = explanation.forecast.decision.outcome == core::Outcome::InProgress &&
                 explanation.forecast.decision.reason != core::Reason::OwnClaim &&
                 question.wait > 0;
    if (waits) note(notes, "idem_begin first waits, as long as the policy's wait says.");
}

Datum notes_of(const Explanation& explanation) {
    Notes notes{};
    if (explanation.closed != nullptr)
        note(&notes, psprintf("Encrypted values of the record cannot be opened here: idem_begin "
                              "raises an error, and the request is assumed to be the record's. %s",
                              explanation.closed));
    if (explanation.no_keys != nullptr &&
        explanation.forecast.decision.outcome == core::Outcome::Execute)
        note(&notes,
             psprintf("Values cannot be encrypted here, so idem_begin raises an error (ID503). %s",
                      explanation.no_keys));
    note_what_is_not_seen(explanation, &notes);
    note_what_was_asked(explanation, &notes);
    return PointerGetDatum(
        construct_array(notes.list, notes.count, TEXTOID, -1, false, TYPALIGN_INT));
}

// ---- the row ----

using Row = FieldRow<ExplanationField>;

void set_decision(const claim::Forecast& forecast, Row* row) {
    const core::Decision& decision = forecast.decision;
    const core::ReasonEntry& reason = core::entry_of(decision.reason);
    row->word(ExplanationField::Outcome, core::entry_of(decision.outcome).word);
    row->word(ExplanationField::Reason, reason.word);
    row->word(ExplanationField::Why, reason.why);
    row->word(ExplanationField::Next, reason.next);
    row->word(ExplanationField::Execution, core::entry_of(decision.execution).word);
    if (decision.retry_after <= 0) return;
    row->value(ExplanationField::RetryAfter,
               Float8GetDatum(static_cast<double>(decision.retry_after) / core::kSecond));
    row->value(ExplanationField::RetryAt,
               TimestampTzGetDatum(pg::after(forecast.now, decision.retry_after)));
}

void set_facts(const Explanation& explanation, bool show_values, Row* row) {
    row->pointer(ExplanationField::Holder, holder_object(explanation));
    const store::Record* record = record_of(explanation);
    if (record == nullptr) return;
    row->pointer(ExplanationField::Record,
                 record_object(*record, explanation.due_at, explanation.closed != nullptr));
    row->pointer(ExplanationField::Request, request_object(explanation, *record, show_values));
    if (record->finished_at == pg::kNoTime && record->lease_until != pg::kNoTime)
        row->pointer(ExplanationField::Lease, lease_object(explanation, *record));
}

// The arguments of the call, and which values its answer shows.
struct Call {
    config::CallSays says;
    bool show_values;
};

Datum explanation_datum(FunctionCallInfo fcinfo, const Explanation& explanation, const Call& call) {
    TupleDesc desc = pg::row_of_called(fcinfo->flinfo->fn_oid, kExplanationFieldCount);
    Row row;
    memset(row.nulls, true, sizeof(row.nulls));
    memset(row.values, 0, sizeof(row.values));
    set_decision(explanation.forecast, &row);
    row.pointer(ExplanationField::Key, explanation.question.id.key);
    row.pointer(ExplanationField::Scope, explanation.question.id.scope);
    row.pointer(ExplanationField::Principal, explanation.question.id.principal);
    set_facts(explanation, call.show_values, &row);
    config::PolicyInForce in_force =
        config::policy_in_force(pg::bytes_of(explanation.question.id.scope), call.says);
    JsonbObject policy = pg::begin_object();
    for (const config::OptionInForce& option : in_force.options)
        pg::add_member(&policy, option.option, option_object(option));
    row.pointer(ExplanationField::Policy, pg::end_object(&policy));
    row.value(ExplanationField::Notes, notes_of(explanation));
    row.value(ExplanationField::IsStandby, BoolGetDatum(RecoveryInProgress()));
    row.value(ExplanationField::ExplainedAt, TimestampTzGetDatum(explanation.forecast.now));
    row.pointer(ExplanationField::Node, name_of_this_node());
    Datum result = HeapTupleGetDatum(heap_form_tuple(desc, row.values, row.nulls));
    ReleaseTupleDesc(desc);
    return result;
}

// idem_explain(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent,
//              show_values, method, path)
Datum explain(FunctionCallInfo fcinfo) {
    pg::require_no_parallel_mode("idem_explain()");
    claim::Question question{};
    question.function = "idem_explain()";
    question.without_request = true;  // a look does not need the request
    question.id = identity(fcinfo, 0, 2, 3);
    question.request = jsonb_or_null(fcinfo, 1);
    question.fingerprint = fingerprint_or_null(fcinfo, 4);
    question.ttl = span_or_none(fcinfo, 5, "ttl", core::kTtlRange);
    question.lease = span_or_none(fcinfo, 6, "lease", core::kLeaseRange);
    question.wait = span_or_none(fcinfo, 7, "wait", core::kWaitRange);
    question.first_sent = moment_or_none(fcinfo, 8, "first_sent");
    question.method = text_or_null(fcinfo, 10);
    question.path = text_or_null(fcinfo, 11);
    Call call{{question.ttl, question.lease, question.wait}, bool_or(fcinfo, 9, false)};
    // Values belong to the client. The owner of the records can read them anyway.
    if (call.show_values && !has_privs_of_role(GetUserId(), store::record_table().owner))
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("permission denied to show values of requests"),
                 errdetail("Only the owner of table idempotency.record may use show_values."),
                 errhint("Omit show_values to see the paths that differ.")));
    return explanation_datum(fcinfo, claim::explain(question), call);
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_operator_explain, idem::operate::at_its_records<idem::operate::explain>);
