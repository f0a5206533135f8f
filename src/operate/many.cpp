// Many records at once: idem_resolve_all and idem_forget_principal, and the functions that they
// call for each record.
//
// No record is waited for. A record that has changed since it was chosen is left alone. Three kinds
// are counted and reported: one that is being executed at this moment, one of a scope closed to the
// caller, and one with a reason of its own against the decision.

#include "core/outcome.hpp"

#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "claim/audit.hpp"
#include "claim/operator.hpp"
#include "config/policy.hpp"
#include "operate/batches.hpp"
#include "operate/nodes.hpp"
#include "operate/resolution.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"
#include "pg/owner.hpp"
#include "pg/wait.hpp"
#include "store/attempt.hpp"
#include "store/audit.hpp"
#include "store/record_table.hpp"

namespace idem::operate {

using namespace api;

namespace {

Datum word_of(claim::Verdict settled) {
    switch (settled) {
        case claim::Verdict::Done:
            return CStringGetTextDatum(kDone);
        case claim::Verdict::Running:
            return CStringGetTextDatum(kRunning);
        case claim::Verdict::Skipped:
            return CStringGetTextDatum(kPassed);
        case claim::Verdict::Closed:
            return CStringGetTextDatum(kClosed);
        case claim::Verdict::NoKey:
            return CStringGetTextDatum(kNoKey);
        case claim::Verdict::TooLarge:
            return CStringGetTextDatum(kTooLarge);
    }
    pg_unreachable();
}

// A status that can be decided.
std::optional<core::Status> status_or_none(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    const text* word = PG_GETARG_TEXT_PP(arg);
    for (core::Status status :
         {core::Status::InProgress, core::Status::Unknown, core::Status::Retryable,
          core::Status::Exhausted, core::Status::Failed})
        if (core::entry_of(status).word == pg::bytes_of(word)) return status;
    raise_word("status", text_to_cstring(word),
               "in_progress, unknown, retryable, exhausted, failed");
}

// Its stored status. A timed-out claim is stored as in progress: its row does not say whether it is
// unknown or exhausted.
const char* stored_as(core::Status status) {
    switch (status) {
        case core::Status::InProgress:
            return "{i}";
        case core::Status::Unknown:
            return "{i,u}";
        case core::Status::Exhausted:
            return "{i,x}";
        case core::Status::Retryable:
            return "{r}";
        case core::Status::Failed:
            return "{f}";
        case core::Status::Completed:
            break;
    }
    return "{}";
}

// idem_resolve_idle(key, action, scope, principal, status_code, body, headers, error, reason,
// status, claimed_at)
Datum resolve_idle(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_resolve_idle()", identity(fcinfo, 0, 2, 3), std::nullopt};
    claim::Resolution resolution = resolution_of(fcinfo, 1, 4, 8);
    claim::ExpectedState seen{status_or_none(fcinfo, 9), moment_or_none(fcinfo, 10, "claimed_at")};
    return word_of(claim::resolve_idle(ref, resolution, seen));
}

// idem_erase(key, scope, principal, reason)
Datum erase(FunctionCallInfo fcinfo) {
    claim::ClaimRef ref{"idem_erase()", identity(fcinfo, 0, 1, 2), std::nullopt};
    return word_of(claim::erase_idle(ref, reason_or_null(fcinfo, 3)));
}

// ---- idem_resolve_all ----

// Its arguments.
enum ResolveAll {
    kAction,
    kReason,
    kScope,
    kPrincipal,
    kStatus,
    kOlderThan,
    kHolder,
    kStatusCode,
    kBody,
    kHeaders,
    kError,
    kBatchSize,
};

// The arguments that idem_resolve_idle gets unchanged for each record.
constexpr int kPassedOn[][2] = {{1, kAction}, {4, kStatusCode}, {5, kBody},  {6, kHeaders},
                                {7, kError},  {8, kReason},     {9, kStatus}};

constexpr const char* kMatches =
    "status = ANY ($6::\"char\"[])"
    " AND ($7 IS NULL OR next_attempt_at IS NULL"
    " OR next_attempt_at <= $7)"
    " AND ($1 IS NULL OR scope = $1)"
    " AND ($2 IS NULL OR starts_with(scope, $2))"
    " AND ($3 IS NULL OR principal = $3)"
    " AND ($4 IS NULL OR claimed_at <= $4)"
    " AND ($5 IS NULL OR holder = $5)";

// A scope, or a prefix of scopes and a "*".
void add_scope(Parameters* parameters, FunctionCallInfo fcinfo) {
    NullableDatum none{0, true};
    NullableDatum exact = fcinfo->args[kScope];
    NullableDatum prefix = none;
    std::string_view pattern =
        exact.isnull ? std::string_view{} : pg::bytes_of(DatumGetTextPP(exact.value));
    if (!pattern.empty() && pattern.back() == '*') {
        prefix = {PointerGetDatum(pg::make_text(pattern.substr(0, pattern.size() - 1))), false};
        exact = none;
    }
    add_parameter(parameters, TEXTOID, exact);
    add_parameter(parameters, TEXTOID, prefix);
}

Parameters filter_of(FunctionCallInfo fcinfo, core::Resolution resolution) {
    std::optional<std::int64_t> age =
        span_or_none(fcinfo, kOlderThan, "older_than", core::kAgeRange);
    std::optional<core::Status> status = status_or_none(fcinfo, kStatus);
    Parameters parameters = room_for(7);
    add_scope(&parameters, fcinfo);
    add_parameter(&parameters, TEXTOID, fcinfo->args[kPrincipal]);
    add_parameter(&parameters, TIMESTAMPTZOID,
                  {TimestampTzGetDatum(GetCurrentTimestamp() - age.value_or(0)), !age});
    add_parameter(&parameters, TEXTOID, fcinfo->args[kHolder]);
    const char* all = resolution == core::Resolution::Reopen ? "{i,x,f}" : "{i,u,x,r}";
    const char* stored = status ? stored_as(*status) : all;
    add_parameter(&parameters, TEXTOID, {CStringGetTextDatum(stored), false});
    // Retryable records run again by themselves after a pause, so `release` takes them only on
    // request.
    bool spares_pauses = resolution == core::Resolution::Release && !status;
    add_parameter(&parameters, TIMESTAMPTZOID,
                  {TimestampTzGetDatum(GetCurrentTimestamp()), !spares_pauses});
    return parameters;
}

void tell_what_is_closed(const Tally& tally) {
    if (tally.closed.records == 0) return;
    auto closed = static_cast<unsigned long>(tally.closed.records);
    ereport(
        NOTICE,
        (errmsg_plural(
             "%s: %lu record is unchanged because its scope is closed to the current user",
             "%s: %lu records are unchanged because their scopes are closed to the current user",
             closed, tally.procedure, closed),
         errdetail("Their policies are not valid, or admit only members of roles that do not exist "
                   "or that the current user is not a member of."),
         errhint("Call it again as a member of the roles in closed_scopes, or when the policies "
                 "are valid again.")));
}

void tell_what_is_undecided(const Tally& tally) {
    if (tally.undecided.records == 0) return;
    auto undecided = static_cast<unsigned long>(tally.undecided.records);
    ereport(NOTICE,
            (errmsg_plural("%s: %lu record is unchanged because it could not be decided",
                           "%s: %lu records are unchanged because they could not be decided",
                           undecided, tally.procedure, undecided),
             errdetail("Encryption keys are missing for %lld records. The answer is too large for "
                       "%lld records.",
                       static_cast<long long>(tally.no_key),
                       static_cast<long long>(tally.undecided.records - tally.no_key)),
             errhint("Call it again when the keys are available, with an answer that the policies "
                     "of undecided_scopes allow.")));
}

// CALL idem_resolve_all(action, reason, scope, principal, status, older_than, holder, status_code,
// body, headers, error, batch_size, resolved, running, running_keys, closed, closed_scopes,
// undecided, undecided_scopes)
Datum resolve_all(FunctionCallInfo fcinfo) {
    require_own_transactions(fcinfo, "idem_resolve_all()");
    int batch = batch_size(fcinfo, kBatchSize);
    claim::Resolution resolution = resolution_of(fcinfo, kAction, kStatusCode, kReason);
    bool is_filtered = false;
    for (int arg : {kScope, kPrincipal, kStatus, kOlderThan, kHolder})
        is_filtered |= !PG_ARGISNULL(arg);
    // scope => '*' asks for all of them explicitly.
    if (!is_filtered)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("no records are selected"),
                 errdetail("All of scope, principal, status, older_than and holder are null."),
                 errhint("For every record that fits the action, pass scope => '*'.")));
    Parameters filter = filter_of(fcinfo, resolution.action);
    connect_to_commit();
    Step step = step_of(fcinfo, "idem_resolve_idle");
    for (const auto& [to, from] : kPassedOn) pass_argument(step, to, fcinfo, from);
    auto place = [](const Step& resolve, const Datum* row) {
        set_argument(resolve, 0, row[2]);
        set_argument(resolve, 2, row[0]);
        set_argument(resolve, 3, row[1]);
        set_argument(resolve, 10, row[3]);
    };
    Tally* tally = begin_tally("idem_resolve_all()");
    settle_all(kMatches, filter, step, place, batch, tally);
    tell_what_is_closed(*tally);
    tell_what_is_undecided(*tally);
    Datum values[] = {Int64GetDatum(tally->done),
                      Int64GetDatum(tally->running),
                      JsonbPGetDatum(running_keys(*tally)),
                      Int64GetDatum(tally->closed.records),
                      JsonbPGetDatum(scopes_of(tally->closed)),
                      Int64GetDatum(tally->undecided.records),
                      JsonbPGetDatum(scopes_of(tally->undecided))};
    return end_with_row(fcinfo, values);
}

// ---- idem_forget_principal ----

constexpr std::int64_t kWaitForClaims = 10 * core::kSecond;

// idem_await_claims(principal, at_most). Every claim locks the table for writing from its grant on,
// and so does each transaction that has ended one.
Datum await_claims(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_await_claims()");
    const text* principal = required_name(fcinfo, 0, "principal");
    std::int64_t at_most = span_or_none(fcinfo, 1, "at_most", core::kWaitRange).value_or(0);
    Oid table = store::lock_table_of(principal, AccessShareLock).table;
    PG_RETURN_INT64(pg::wait_for_lockers(table, ShareLock, at_most));
}

// Asks on the node with the records. The next scan sees the commits of the transactions that have
// ended.
std::int64_t open_after(const Step& await, std::int64_t at_most) {
    auto* span = static_cast<Interval*>(palloc0(sizeof(Interval)));
    span->time = at_most;
    set_argument(await, 1, IntervalPGetDatum(span));
    await.call->isnull = false;
    std::int64_t open = DatumGetInt64(FunctionCallInvoke(await.call));
    commit_batch();
    return open;
}

// Records that a principal was to be forgotten, and the counts, without its name.
void audit_erasure(Jsonb* found, const text* reason) {
    claim::Audited what{};
    what.action = "erase";
    what.after = found;
    what.reason = reason;
    what.anonymous = true;
    claim::audit(what);
}

std::int64_t erase_decisions_here(const text* principal, const text* reason) {
    std::int64_t decisions = store::make_audit_anonymous(principal);
    pg::JsonbObject found = pg::begin_object();
    pg::add_member(&found, "decisions", decisions);
    audit_erasure(pg::end_object(&found), reason);
    return decisions;
}

// idem_erase_decisions(of_principal, reason), on this node
Datum erase_decisions(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_erase_decisions()");
    text* principal = required_name(fcinfo, 0, "of_principal");
    PG_RETURN_INT64(erase_decisions_here(principal, reason_or_null(fcinfo, 1)));
}

const char* literal_of(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return "NULL";
    return quote_literal_cstr(text_to_cstring(PG_GETARG_TEXT_PP(arg)));
}

char* erase_decisions_statement(std::int64_t, void* argument) {
    auto* fcinfo = static_cast<FunctionCallInfo>(argument);
    char* schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
    return psprintf("SELECT %s(%s, %s)", quote_qualified_identifier(schema, "idem_erase_decisions"),
                    literal_of(fcinfo, 0), literal_of(fcinfo, 1));
}

// Removes the remaining history: of keys whose records are already gone, and of running ones; not
// of closed scopes. Returns the number of attempts removed.
std::int64_t remove_history(const text* principal, Tally* tally) {
    int count;
    const store::ScopeAttempts* scopes = store::attempts_by_scope(principal, &count);
    auto* closed = static_cast<Datum*>(palloc(sizeof(Datum) * static_cast<Size>(count + 1)));
    int spared = 0;
    for (int i = 0; i < count; i++) {
        if (!config::is_closed(config::closure_of(pg::bytes_of(scopes[i].scope)))) continue;
        count_closed_attempts(tally, scopes[i].scope, scopes[i].attempts);
        closed[spared++] = PointerGetDatum(scopes[i].scope);
    }
    ArrayType* but = construct_array(closed, spared, TEXTOID, -1, false, TYPALIGN_INT);
    return store::remove_attempts_of(principal, but);
}

// The caller must not take an incomplete erasure for a complete one.
void warn_unless_complete(const Tally& tally) {
    if (is_complete(tally)) return;
    ereport(
        WARNING,
        (errmsg("%s: the principal is not completely erased", tally.procedure),
         errdetail(
             "%lld records are being executed. %lld records and %lld attempts are in scopes that "
             "are closed to the current user, or closed because their policy is not valid.",
             static_cast<long long>(tally.running), static_cast<long long>(tally.closed.records),
             static_cast<long long>(tally.closed.attempts)),
         errhint("Call it again when the executions have ended, as a member of the roles in "
                 "closed_scopes, or when the policies are valid again.")));
}

constexpr long kPauseAfterClaims = 100 * 1000L;  // microseconds

// No scan shows a new claim until it commits. So this waits for the transactions that may have one,
// and then scans again, like CREATE INDEX CONCURRENTLY. A first look tells if there are any.
void erase_all(FunctionCallInfo fcinfo, const text* principal, int batch, Tally* tally) {
    Parameters whose = room_for(1);
    add_parameter(&whose, TEXTOID, {PointerGetDatum(principal), false});
    Step erase = step_of(fcinfo, "idem_erase");
    pass_argument(erase, 3, fcinfo, 1);
    Step await = step_of(fcinfo, "idem_await_claims");
    set_argument(await, 0, PointerGetDatum(principal));
    auto place = [](const Step& step, const Datum* row) {
        set_argument(step, 0, row[2]);
        set_argument(step, 1, row[0]);
        set_argument(step, 2, row[1]);
    };
    constexpr const char* kOfPrincipal = "principal = $1";
    bool alone = open_after(await, 0) == 0;
    settle_all(kOfPrincipal, whose, erase, place, batch, tally);
    if (alone || !is_complete(*tally)) return;
    tally->open = open_after(await, kWaitForClaims);
    // A transaction releases its key locks a moment after its end (ResourceOwnerRelease).
    pg_usleep(kPauseAfterClaims);
    CHECK_FOR_INTERRUPTS();
    settle_all(kOfPrincipal, whose, erase, place, batch, tally);
    if (tally->open == 0) return;
    auto open = static_cast<unsigned long>(tally->open);
    ereport(NOTICE, (errmsg_plural("%s: %lu transaction is open that may write such records",
                                   "%s: %lu transactions are open that may write such records",
                                   open, tally->procedure, open),
                     errdetail("The call has waited for %d seconds.",
                               static_cast<int>(kWaitForClaims / core::kSecond)),
                     errhint("Call it again when the transactions that are open now have ended.")));
}

// CALL idem_forget_principal(principal, reason, batch_size, forgotten, running, running_keys,
// closed, closed_scopes, decisions, complete)
Datum forget_principal(FunctionCallInfo fcinfo) {
    require_own_transactions(fcinfo, "idem_forget_principal()");
    text* principal = required_name(fcinfo, 0, "principal");
    const text* reason = reason_or_null(fcinfo, 1);
    int batch = batch_size(fcinfo, 2);
    connect_to_commit();
    Tally* tally = begin_tally("idem_forget_principal()");
    erase_all(fcinfo, principal, batch, tally);
    std::int64_t attempts = remove_history(principal, tally);
    pg::JsonbObject found = pg::begin_object();
    pg::add_member(&found, "forgotten", tally->done);
    pg::add_member(&found, "attempts", attempts);
    pg::add_member(&found, "running", tally->running);
    pg::add_member(&found, "closed", tally->closed.records);
    pg::add_member(&found, "closed_attempts", tally->closed.attempts);
    audit_erasure(pg::end_object(&found), reason);
    // This commit keeps the erasure even if a node can't be asked.
    commit_batch();
    // Each node has decisions of its own.
    std::int64_t decisions = asks_other_nodes() ? sum_of_nodes(erase_decisions_statement, fcinfo)
                                                : erase_decisions_here(principal, reason);
    warn_unless_complete(*tally);
    Datum values[] = {Int64GetDatum(tally->done),
                      Int64GetDatum(tally->running),
                      JsonbPGetDatum(running_keys(*tally)),
                      Int64GetDatum(tally->closed.records),
                      JsonbPGetDatum(scopes_of(tally->closed)),
                      Int64GetDatum(decisions),
                      BoolGetDatum(is_complete(*tally))};
    return end_with_row(fcinfo, values);
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_operator_resolve_idle,
              idem::operate::at_its_records<idem::operate::resolve_idle>);
IDEM_FUNCTION(idem_operator_erase, idem::operate::at_its_records<idem::operate::erase>);
IDEM_FUNCTION(idem_operator_await_claims,
              idem::operate::at_its_records<idem::operate::await_claims>);
IDEM_FUNCTION(idem_operator_erase_decisions, idem::operate::erase_decisions);
IDEM_FUNCTION(idem_operator_resolve_all, idem::operate::resolve_all);
IDEM_FUNCTION(idem_operator_forget_principal, idem::operate::forget_principal);
