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

void raise_exclude(std::size_t index) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid field to exclude"),
             errdetail("Entry %zu can't be read.", index + 1),
             errhint("Write a plain field name, or a path such as \"$.a.b\" or \"$.a[*].b\".")));
    pg_unreachable();
}

void raise_too_deep() {
    ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("request is nested too deeply"),
                    errdetail("A fingerprint reads at most %d levels.", core::kMaxJsonDepth)));
    pg_unreachable();
}

// Not one that the server itself lets into a jsonb.
void raise_no_canonical_form() {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("request has no canonical form"),
             errdetail("One of its numbers is not finite.")));
    pg_unreachable();
}

void raise_digest() {
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
                    errmsg("could not compute the SHA-256 digest of the request"),
                    errdetail("OpenSSL refused the computation.")));
    pg_unreachable();
}

void raise_request_too_large(std::size_t bytes) {
    ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                    errmsg("request is too large to take its fingerprint"),
                    errdetail("It has %zu bytes; %zu are allowed.", bytes, core::kMaxRequestBytes),
                    errhint("Pass a digest of your own as fingerprint.")));
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

void raise_too_large(const char* what, std::int64_t bytes, std::int64_t limit, const char* hint) {
    ereport(ERROR,
            (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("size of %s exceeds the limit", what),
             errdetail("It has %lld bytes; %lld are allowed.", static_cast<long long>(bytes),
                       static_cast<long long>(limit)),
             errhint("%s", hint)));
    pg_unreachable();
}

void raise_required(const char* what, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s is required", what),
                    errdetail("The policy of this scope requires it."), errhint("%s", hint)));
    pg_unreachable();
}

void raise_no_claim() {
    ereport(ERROR, (errcode(kNoClaim), errmsg("no claim on this key"),
                    errdetail("There is no record of this scope, principal and key."),
                    errhint("Call idem_begin first, with the same scope and principal.")));
    pg_unreachable();
}

void raise_claim_lost() {
    ereport(ERROR,
            (errcode(kClaimLost), errmsg("claim on this key is lost"),
             errdetail("The token is not the one of the record's current claim."),
             errhint("Somebody else took the request over. Stop, and call idem_begin to learn "
                     "its result.")));
    pg_unreachable();
}

void raise_claim_ended() {
    ereport(ERROR, (errcode(kClaimLost), errmsg("claim on this key has ended"),
                    errdetail("Its result has been recorded."),
                    errhint("There is nothing left to keep alive.")));
    pg_unreachable();
}

void raise_token_required() {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a token is required"),
                    errdetail("The claim was not begun in this transaction."),
                    errhint("Pass the token that idem_begin returned.")));
    pg_unreachable();
}

void raise_claim_overtaken() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not record the result because of a concurrent claim"),
                    errdetail("Another transaction has written the record of this key."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

void raise_still_deciding() {
    ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                    errmsg("another execution of this key has not ended"),
                    errdetail("Neither true nor false would be right yet."),
                    errhint("Retry later, or allow a longer wait.")));
    pg_unreachable();
}

void raise_retry_pending() {
    ereport(ERROR,
            (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
             errmsg("the last execution of this key failed and may not be repeated yet"),
             errdetail("The pause before its next attempt is not over."), errhint("Retry later.")));
    pg_unreachable();
}

void raise_own_claim_open() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("this transaction has begun this key and not ended it"),
                    errhint("End the claim with idem_complete, idem_fail or idem_release.")));
    pg_unreachable();
}

void raise_needs_operator(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is %s", status),
                    errdetail("It can't be executed again by itself."),
                    errhint("An operator can decide with idem_resolve.")));
    pg_unreachable();
}

void raise_final(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is already %s", status),
                    errdetail("A result that clients have seen is never changed."),
                    errhint("idem_forget removes the record.")));
    pg_unreachable();
}

void raise_lease_lives() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the key is being executed"),
                    errdetail("The lease of its claim has not run out."),
                    errhint("Wait for it, or end it with idem_resolve.")));
    pg_unreachable();
}

void raise_being_written() {
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the claim is being written"),
             errdetail("A trigger on idempotency.record has called back for the same key.")));
    pg_unreachable();
}

// The retry has a snapshot that knows the attempt.
void raise_unseen_attempt() {
    ereport(
        ERROR,
        (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
         errmsg("could not serialize access due to an earlier attempt with this key"),
         errdetail("The snapshot is older than that attempt's end and may not see its effects."),
         errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

void raise_table_changed() {
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("an open claim could not be written at commit"),
             errdetail("This transaction has changed table idempotency.record since the claim."),
             errhint("End claims before changing the table, or change it in a transaction of its "
                     "own.")));
    pg_unreachable();
}

void raise_own_operation() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the operation of this key is running"),
                    errdetail("idem_execute ends its claim when the operation has returned."),
                    errhint("Return the answer, or raise an error.")));
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
