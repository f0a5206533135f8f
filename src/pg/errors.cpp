#include "pg/errors.hpp"

namespace idem::pg {

void raise_null(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what),
                    errhint("Pass a value.")));
    pg_unreachable();
}

void raise_out_of_range(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("%s out of range", what),
                    errdetail("Its microseconds since 1970 do not fit into 64 bits.")));
    pg_unreachable();
}

void raise_pattern(core::PatternFault fault, std::size_t chars) {
    const char* detail = "It contains a control character.";
    if (fault == core::PatternFault::TooLong)
        detail = psprintf("It has %zu characters; %zu are allowed.", chars, core::kMaxNameChars);
    else if (fault == core::PatternFault::InnerStar)
        detail = "It has a \"*\" before its end.";
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid scope_pattern"),
             errdetail("%s", detail),
             errhint("A pattern is a scope, or the beginning of scopes followed by \"*\".")));
    pg_unreachable();
}

void raise_word(const char* what, const char* given, const char* allowed) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: \"%s\"", what, given), errhint("Use one of %s.", allowed)));
    pg_unreachable();
}

void raise_number(const char* what, std::int64_t given, std::int64_t least, std::int64_t most) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: %lld", what, static_cast<long long>(given)),
                    errhint("Use a number from %lld to %lld.", static_cast<long long>(least),
                            static_cast<long long>(most))));
    pg_unreachable();
}

void raise_retention_below_ttl() {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid retention"),
                    errdetail("It is shorter than the ttl."),
                    errhint("A key has to be remembered at least as long as its answer is "
                            "replayed.")));
    pg_unreachable();
}

void raise_retry_base_above_cap() {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid retry_base"),
                    errdetail("It is longer than retry_cap."),
                    errhint("The pause after the first attempt is the shortest one.")));
    pg_unreachable();
}

void raise_drop_headers() {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid drop_headers"),
                    errdetail("A header's name is empty or has characters that HTTP does not "
                              "allow."),
                    errhint("List names such as \"Set-Cookie\".")));
    pg_unreachable();
}

void raise_final_errors() {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid final_errors"),
                    errdetail("An entry is no SQLSTATE and no class of them, or one of the classes "
                              "40, 53, 57, 58 and XX, which are nobody's answer."),
                    errhint("List entries such as \"22\" or \"P0002\".")));
    pg_unreachable();
}

void raise_no_claim() {
    ereport(ERROR, (errcode(kNoClaim), errmsg("no claim on this key"),
                    errdetail("There is no record of this scope, principal and key."),
                    errhint("Call idem_begin first, with the same scope and principal.")));
    pg_unreachable();
}

void raise_claim_overtaken() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not record the result because of a concurrent claim"),
                    errdetail("Another transaction has written the record of this key."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

void raise_own_claim_open() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("this transaction has begun this key and not ended it"),
                    errhint("End the claim with idem_complete, idem_fail or idem_release.")));
    pg_unreachable();
}

void require_no_parallel_mode(const char* function) {
    PreventCommandIfParallelMode(function);
}

void require_writable(const char* function) {
    require_no_parallel_mode(function);
    PreventCommandIfReadOnly(function);
    PreventCommandDuringRecovery(function);
}

void raise_role(const char* role) {
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for this scope"),
             errdetail("Its policy admits only members of role \"%s\".", role)));
    pg_unreachable();
}

void raise_missing_role(const char* role) {
    ereport(
        ERROR,
        (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for this scope"),
         errdetail("Its policy admits only members of role \"%s\", which does not exist.", role),
         errhint("Create the role, or give the scope another policy with idem_policy_set.")));
    pg_unreachable();
}

void raise_policy_unusable(const char* column) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the policy of this scope is not valid"),
                    errdetail("Its %s is not what idem_policy_set accepts.", column),
                    errhint("Set it anew with idem_policy_set, or drop it with "
                            "idem_policy_drop.")));
    pg_unreachable();
}

void raise_policy_table(const char* column) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("table idempotency.policy can't be read"),
                    errdetail("Its column %s has another type, or is null.", column),
                    errhint("Make the table what CREATE EXTENSION made it.")));
    pg_unreachable();
}

}  // namespace idem::pg
