// idem_policy_set, idem_policy_alter, idem_policy_drop, idem_policy, and the trigger that announces
// changes to other backends.

#include "core/key.hpp"
#include "core/pattern.hpp"

#include "api/arguments.hpp"
#include "claim/audit.hpp"
#include "claim/operator.hpp"
#include "config/policy.hpp"
#include "config/policy_change.hpp"
#include "config/policy_in_force.hpp"
#include "pg/boundary.hpp"
#include "request/fingerprint.hpp"

namespace idem::operate {

using namespace api;

namespace {

using config::PolicyRow;
using core::OptionType;
using core::PolicyColumn;

[[noreturn]] void raise_pattern(const PolicyRow& row) {
    core::Name pattern = pg::name_of(DatumGetTextPP(row.values[config::kPattern]));
    const char* detail = "It contains a control character.";
    switch (core::check_pattern(pattern.bytes, pattern.chars, pattern.utf8)) {
        case core::PatternFault::TooLong:
            detail = psprintf("It has %zu characters; %zu are allowed.", pattern.chars,
                              core::kMaxNameChars);
            break;
        case core::PatternFault::InnerStar:
            detail = "It has a \"*\" before its end.";
            break;
        case core::PatternFault::ControlCharacter:
        case core::PatternFault::None:
            break;
    }
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid scope_pattern"),
             errdetail("%s", detail),
             errhint("A pattern is a scope, or the beginning of scopes followed by \"*\".")));
    pg_unreachable();
}

[[noreturn]] void raise_complaint(const char* what, const core::Complaint& complaint) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", complaint.detail), errhint("%s", complaint.hint)));
    pg_unreachable();
}

// Checks that each entry can be read as a request's field, in UTF-8.
void check_fields(ArrayType* array, int which) {
    const char* name = core::kPolicyColumns[which].name;
    if (which == config::kExcludeFields) (void)request::fields_of(array, name, "exclude");
    if (which == config::kFingerprintFields) (void)request::fields_of(array, name, "count");
}

// Says why a value does not fit.
[[noreturn]] void raise_unfit(const PolicyRow& row, int which) {
    const PolicyColumn& column = core::kPolicyColumns[which];
    Datum value = row.values[which];
    switch (column.type) {
        case OptionType::Pattern:
            raise_pattern(row);
        case OptionType::Span:
            check_span(pg::micros_of(DatumGetIntervalP(value)), column.name, column.range);
            break;
        case OptionType::Number:
            raise_number(column.name, DatumGetInt32(value), column.least, column.most);
        case OptionType::Word:
            raise_word(column.name, TextDatumGetCString(value), column.words);
        case OptionType::List:
            (void)pg::text_list(DatumGetArrayTypeP(value), column.name);  // refuses null elements
            check_fields(DatumGetArrayTypeP(value), which);
            raise_complaint(column.name, column.complaint);
        case OptionType::Map:
            raise_complaint(column.name, column.complaint);
        case OptionType::Flag:
        case OptionType::Role:
        case OptionType::Moment:
            break;
    }
    elog(ERROR, "idempotency: no value of %s is refused", column.name);
    pg_unreachable();
}

// Each option by itself, and beside those checked before it. An option left open counts with its
// current value.
void check_row(const PolicyRow& row) {
    for (int column : config::kCheckOrder.columns) {
        if (!config::fits(row, column)) raise_unfit(row, column);
        for (const core::SpansInOrder& spans : core::kSpansInOrder)
            if (column == spans.longer && config::are_out_of_order(row, spans))
                raise_complaint(spans.blamed, spans.complaint);
        if (!row.nulls[column] && core::kPolicyColumns[column].type == OptionType::List)
            check_fields(DatumGetArrayTypeP(row.values[column]), column);
    }
}

// Puts the given options into the row, unchecked, except for the role. The role's name is looked up
// after all other checks.
void take_options(FunctionCallInfo fcinfo, PolicyRow* row) {
    for (int i = 0; i < config::kOptions; i++) {
        if (PG_ARGISNULL(i) || i == config::kAllowedRole) continue;
        row->values[i] =
            config::is_varlena(i) ? PointerGetDatum(PG_GETARG_VARLENA_P(i)) : PG_GETARG_DATUM(i);
        row->nulls[i] = false;
    }
}

void check(FunctionCallInfo fcinfo, PolicyRow* row) {
    check_row(*row);
    if (PG_ARGISNULL(config::kAllowedRole)) return;
    // The argument is a role: it exists, and is quoted as roles are. The table stores its name.
    auto name = static_cast<Name>(palloc(sizeof(NameData)));
    (void)namestrcpy(name, GetUserNameFromId(PG_GETARG_OID(config::kAllowedRole), false));
    row->values[config::kAllowedRole] = NameGetDatum(name);
    row->nulls[config::kAllowedRole] = false;
}

// Changes the policy with that pattern. `Change` returns whether anything changed. The policies are
// locked first, so the audit row matches the change.
template <typename Change>
bool audited(const char* action, text* pattern, const text* reason, Change change) {
    (void)config::lock_policies(CurrentMemoryContext);
    claim::Audited what{};
    what.action = action;
    what.scope = pattern;
    what.reason = reason;
    what.before = config::policy_as_json(pattern);
    if (!change()) return false;
    what.after = config::policy_as_json(pattern);
    claim::audit(what);
    return true;
}

// idem_policy_set(scope_pattern, ttl, ..., reason, replace): the columns of the table, in the same
// order.
Datum set(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_policy_set()");
    text* pattern = required_text(fcinfo, config::kPattern, "scope_pattern");
    PolicyRow row{};
    for (bool& null : row.nulls) null = true;
    take_options(fcinfo, &row);
    check(fcinfo, &row);
    const text* reason = reason_or_null(fcinfo, config::kOptions);
    config::ChangeTerms terms{bool_or(fcinfo, config::kOptions + 1, false),
                              claim::says_why(reason)};
    (void)audited("policy_set", pattern, reason,
                  [&row, &terms] { return config::set_policy(&row, terms); });
    PG_RETURN_VOID();
}

[[noreturn]] void raise_unset(std::string_view name, const char* detail, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid unset"),
                    errdetail("\"%.*s\" %s", static_cast<int>(name.size()), name.data(), detail),
                    errhint("%s", hint)));
    pg_unreachable();
}

// The last argument: options to reset as if never set.
void unset_options(FunctionCallInfo fcinfo, PolicyRow* row) {
    if (PG_ARGISNULL(config::kOptions)) return;
    pg::TextList names = pg::text_list(PG_GETARG_ARRAYTYPE_P(config::kOptions), "unset");
    for (std::size_t i = 0; i < names.count; i++) {
        int option = config::kPattern + 1;
        while (option < config::kOptions && names.items[i] != core::kPolicyColumns[option].name)
            option++;
        if (option == config::kOptions)
            raise_unset(names.items[i], "is not an option.",
                        "Use the names of this function's arguments.");
        if (!PG_ARGISNULL(option))
            raise_unset(names.items[i], "also has a value.",
                        "Give an option a value, or unset it.");
        row->nulls[option] = true;
    }
}

// idem_policy_alter(scope_pattern, ttl, ..., unset, reason)
Datum alter(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_policy_alter()");
    text* pattern = required_text(fcinfo, config::kPattern, "scope_pattern");
    const text* reason = reason_or_null(fcinfo, config::kOptions + 1);
    (void)audited("policy_alter", pattern, reason, [fcinfo, pattern, reason] {
        PolicyRow row;
        if (!config::policy_to_change(pattern, &row))
            ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                            errmsg("there is no policy with this scope_pattern"),
                            errdetail("Policies are found by their exact pattern."),
                            errhint("Create one with idem_policy_set.")));
        unset_options(fcinfo, &row);
        take_options(fcinfo, &row);
        check(fcinfo, &row);
        return config::set_policy(&row, {true, claim::says_why(reason)});
    });
    PG_RETURN_VOID();
}

// idem_policy_drop(scope_pattern, reason)
Datum drop(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_policy_drop()");
    text* pattern = required_text(fcinfo, 0, "scope_pattern");
    const text* reason = reason_or_null(fcinfo, 1);
    PG_RETURN_BOOL(audited("policy_drop", pattern, reason, [pattern, reason] {
        return config::drop_policy(pattern, claim::says_why(reason));
    }));
}

// idem_policy(scope): option, value, source, origin
Datum in_force(FunctionCallInfo fcinfo) {
    text* scope = label(fcinfo, 0, "scope");
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    config::PolicyInForce policy = config::policy_in_force(pg::bytes_of(scope), {});
    for (const config::OptionInForce& row : policy.options) {
        const char* fields[] = {row.option, row.value, config::word_of(row.source), row.origin};
        Datum values[std::size(fields)] = {};
        bool nulls[std::size(fields)];
        for (std::size_t i = 0; i < std::size(fields); i++) {
            nulls[i] = fields[i] == nullptr;
            if (!nulls[i]) values[i] = CStringGetTextDatum(fields[i]);
        }
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return 0;
}

// Trigger on idempotency.policy, for each row.
Datum changed(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    config::announce_policy_change();
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_administrator_policy_set, idem::operate::set);
IDEM_FUNCTION(idem_administrator_policy_alter, idem::operate::alter);
IDEM_FUNCTION(idem_administrator_policy_drop, idem::operate::drop);
IDEM_FUNCTION(idem_staff_policy, idem::operate::in_force);
IDEM_FUNCTION(idem_policy_changed, idem::operate::changed);
