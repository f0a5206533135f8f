// idem_policy_set, idem_policy_drop, and the trigger that tells other backends.

#include "core/policy.hpp"
#include "core/header.hpp"
#include "core/pattern.hpp"
#include "core/sqlstate.hpp"

#include "api/arguments.hpp"
#include "claim/fingerprint.hpp"
#include "config/policy.hpp"
#include "config/policy_change.hpp"
#include "config/settings.hpp"
#include "pg/boundary.hpp"
#include "pg/errors.hpp"

namespace idem::api {

namespace {

// The arguments of idem_policy_set are the columns of the table, in the same order.
using config::PolicyColumn;

void check_pattern(FunctionCallInfo fcinfo) {
    core::Name given = pg::name_of(required_text(fcinfo, PolicyColumn::kPattern, "scope_pattern"));
    core::PatternFault fault = core::check_pattern(given.bytes, given.chars, given.utf8);
    if (fault != core::PatternFault::None) pg::raise_pattern(fault, given.chars);
}

// What the policy leaves open is compared as it is now.
void check_spans(FunctionCallInfo fcinfo) {
    core::Policy now = config::default_policy();
    auto span = [fcinfo](PolicyColumn column, const char* name, core::DurationRange range) {
        return duration_or_none(fcinfo, column, name, range);
    };
    auto ttl = span(PolicyColumn::kTtl, "ttl", core::kTtlRange);
    auto retention = span(PolicyColumn::kRetention, "retention", core::kRetentionRange);
    if (retention && *retention < ttl.value_or(now.ttl)) pg::raise_retention_below_ttl();
    (void)span(PolicyColumn::kLease, "lease", core::kLeaseRange);
    (void)span(PolicyColumn::kWait, "wait", core::kWaitRange);
    auto base = span(PolicyColumn::kRetryBase, "retry_base", core::kRetryRange);
    auto cap = span(PolicyColumn::kRetryCap, "retry_cap", core::kRetryRange);
    if (base.value_or(now.retry_base) > cap.value_or(now.retry_cap))
        pg::raise_retry_base_above_cap();
}

void check_number(FunctionCallInfo fcinfo, PolicyColumn column, const char* name,
                  std::int64_t least, std::int64_t most) {
    if (PG_ARGISNULL(column)) return;
    std::int64_t given = PG_GETARG_INT32(column);
    if (given < least || given > most) pg::raise_number(name, given, least, most);
}

void check_words(FunctionCallInfo fcinfo) {
    text* word = text_or_null(fcinfo, PolicyColumn::kOnLeaseExpiry);
    if (word != nullptr && !core::on_lease_expiry_from_word(pg::bytes_of(word)))
        pg::raise_word("on_lease_expiry", text_to_cstring(word), "takeover, unknown");
    word = text_or_null(fcinfo, PolicyColumn::kOnLargeBody);
    if (word != nullptr && !core::on_large_body_from_word(pg::bytes_of(word)))
        pg::raise_word("on_large_body", text_to_cstring(word), "error, omit");
}

void check_exclude_fields(FunctionCallInfo fcinfo) {
    if (!PG_ARGISNULL(PolicyColumn::kExcludeFields))
        (void)claim::excludes_of(PG_GETARG_ARRAYTYPE_P(PolicyColumn::kExcludeFields),
                                 "exclude_fields");
}

void check_drop_headers(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(PolicyColumn::kDropHeaders)) return;
    pg::TextList names =
        pg::text_list(PG_GETARG_ARRAYTYPE_P(PolicyColumn::kDropHeaders), "drop_headers");
    for (std::size_t i = 0; i < names.count; i++)
        if (!core::is_header_name(names.items[i])) pg::raise_drop_headers();
}

void check_final_errors(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(PolicyColumn::kFinalErrors)) return;
    pg::TextList entries =
        pg::text_list(PG_GETARG_ARRAYTYPE_P(PolicyColumn::kFinalErrors), "final_errors");
    for (std::size_t i = 0; i < entries.count; i++)
        if (!core::may_be_final(entries.items[i])) pg::raise_final_errors();
}

// The argument is a role, so that it exists and is quoted as roles are; the table keeps its name.
Datum role_name(Oid role) {
    auto name = static_cast<Name>(palloc(sizeof(NameData)));
    (void)namestrcpy(name, GetUserNameFromId(role, false));
    return NameGetDatum(name);
}

// Copied where it is not plain.
Datum plain(FunctionCallInfo fcinfo, int arg, Oid type) {
    bool is_varlena = type == TEXTOID || type == TEXTARRAYOID;
    return is_varlena ? PointerGetDatum(PG_GETARG_VARLENA_P(arg)) : PG_GETARG_DATUM(arg);
}

config::PolicyRow row_of(FunctionCallInfo fcinfo) {
    config::PolicyRow row{};
    for (int i = 0; i < PolicyColumn::kSince; i++) {
        row.nulls[i] = PG_ARGISNULL(i);
        if (!row.nulls[i]) row.values[i] = plain(fcinfo, i, config::kPolicyColumnTypes[i].type);
    }
    if (!row.nulls[PolicyColumn::kAllowedRole])
        row.values[PolicyColumn::kAllowedRole] =
            role_name(PG_GETARG_OID(PolicyColumn::kAllowedRole));
    return row;
}

// idem_policy_set(scope_pattern, ttl, ...)
Datum set(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_policy_set()");
    check_pattern(fcinfo);
    check_spans(fcinfo);
    check_number(fcinfo, PolicyColumn::kMaxAttempts, "max_attempts", 1, INT32_MAX);
    check_number(fcinfo, PolicyColumn::kMaxBodyBytes, "max_body_bytes", 0, core::kLargestBody);
    check_words(fcinfo);
    check_exclude_fields(fcinfo);
    check_drop_headers(fcinfo);
    check_final_errors(fcinfo);
    config::PolicyRow row = row_of(fcinfo);
    config::set_policy(&row);
    PG_RETURN_VOID();
}

// idem_policy_drop(scope_pattern)
Datum drop(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_policy_drop()");
    PG_RETURN_BOOL(config::drop_policy(required_text(fcinfo, 0, "scope_pattern")));
}

// Trigger on idempotency.policy, after each statement.
Datum changed(FunctionCallInfo fcinfo) {
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("this function is called by a trigger only")));
    config::announce_policy_change();
    PG_RETURN_POINTER(nullptr);
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_operator_policy_set, idem::api::set);
IDEM_FUNCTION(idem_operator_policy_drop, idem::api::drop);
IDEM_FUNCTION(idem_policy_changed, idem::api::changed);
