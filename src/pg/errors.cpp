#include "pg/errors.hpp"

namespace idem::pg {

namespace {

constexpr const char* kNameHint =
    "Send a key that the client made for this one request, such as a UUID.";

}  // namespace

void raise_null(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what),
                    errhint("Pass a value.")));
    pg_unreachable();
}

void raise_null_default(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what),
                    errhint("Leave the argument out to get its default.")));
    pg_unreachable();
}

void raise_null_element(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("invalid %s", what),
                    errdetail("One of its elements is null."),
                    errhint("Leave it out, or use an empty string if that is meant.")));
    pg_unreachable();
}

void raise_too_many(const char* what, int count, int limit) {
    ereport(ERROR,
            (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many elements in %s", what),
             errdetail("There are %d; %d are allowed.", count, limit)));
    pg_unreachable();
}

void raise_name(const char* what, core::NameFault fault, const core::Name& name) {
    const char* detail = "";
    switch (fault) {
        case core::NameFault::Empty:
            detail = "It is empty.";
            break;
        case core::NameFault::Blank:
            detail = "It consists of spaces only.";
            break;
        case core::NameFault::TooLong:
            detail = psprintf("It has %zu characters; %zu are allowed.", name.chars,
                              core::kMaxNameChars);
            break;
        case core::NameFault::ControlCharacter:
            detail = "It contains a control character.";
            break;
        case core::NameFault::None:
            break;
    }
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail),
                    strcmp(what, "key") == 0
                        ? errhint("%s", kNameHint)
                        : errhint("A %s has up to 255 characters, none of them a control "
                                  "character.",
                                  what)));
    pg_unreachable();
}

void raise_identity_size(std::size_t bytes, std::size_t limit) {
    ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                    errmsg("key, scope and principal are too long together"),
                    errdetail("They have %zu bytes; %zu are allowed.", bytes, limit),
                    errhint("Each may have 255 characters, but not all of them four-byte ones.")));
    pg_unreachable();
}

void raise_duration(const char* what, core::DurationFault fault, core::DurationRange range) {
    const char* detail = fault == core::DurationFault::Negative ? "It is negative."
                         : fault == core::DurationFault::Zero   ? "It is zero."
                                                                : "It is too long.";
    long long days = range.longest / core::kDay;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail),
                    errhint("Use an interval %s and at most %lld %s.",
                            range.zero_allowed ? "that is not negative" : "of more than zero", days,
                            days == 1 ? "day" : "days")));
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

void raise_fingerprint_size(std::size_t bytes) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid fingerprint"),
                    errdetail("It has %zu bytes; 1 to 64 are allowed.", bytes),
                    errhint("Use idem_fingerprint(), or a digest of your own.")));
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

void raise_headers(const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid headers"),
                    errdetail("%s", detail),
                    errhint("Use an object from header names to strings or arrays of strings.")));
    pg_unreachable();
}

void raise_not_finite(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("It is infinite."), errhint("Use a moment in time.")));
    pg_unreachable();
}

void raise_retry_after_without_retry() {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid retry_after"),
                    errdetail("A final failure is not run again."),
                    errhint("Add retryable => true, or leave retry_after out.")));
    pg_unreachable();
}

void raise_unused(const char* what, const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail), errhint("Leave it out.")));
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

void raise_row_swallowed() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key could not be written"),
                    errdetail("A trigger or rule on idempotency.record has left the row out."),
                    errhint("Drop the trigger or rule, or let it keep every row.")));
    pg_unreachable();
}

void raise_deferred_trigger(const char* trigger) {
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("table idempotency.record has a deferred trigger"),
             errdetail("Trigger \"%s\" would run at commit, with the rights of whoever commits.",
                       trigger),
             errhint("Make it INITIALLY IMMEDIATE, or drop it.")));
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

// The server's own words for a lock that is not granted in time.
void raise_lease_wait_timeout() {
    ereport(ERROR,
            (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("canceling statement due to lock timeout"),
             errdetail("The claim that it waited for is still leased.")));
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

void raise_not_installed() {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("extension \"idempotency\" is not installed in this database"),
                    errhint("Run CREATE EXTENSION idempotency.")));
    pg_unreachable();
}

void raise_no_heap_store(const char* obstacle) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("the heap store cannot serve table idempotency.record"),
                    errdetail("%s", obstacle), errhint("Set idempotency.store to auto or sql.")));
    pg_unreachable();
}

// Which of the two is older decides what has to be done about it.
void raise_version(const char* library, const char* installed) {
    bool objects_are_older = strverscmp(installed, library) < 0;
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("extension \"idempotency\" is half updated"),
                    errdetail("The library is of version %s, the objects in this database are of "
                              "version %s.",
                              library, installed),
                    objects_are_older
                        ? errhint("Run ALTER EXTENSION idempotency UPDATE.")
                        : errhint("Install the library of that version, and reconnect. If it is in "
                                  "shared_preload_libraries, restart the server.")));
    pg_unreachable();
}

void raise_no_statistics() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("statistics need shared memory"),
                    errdetail("The library was not loaded when the server started."),
                    errhint("Add idempotency to shared_preload_libraries and restart the server. "
                            "Everything else works without.")));
    pg_unreachable();
}

void raise_strict_operation() {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("operation needs a request"),
                    errdetail("It is a strict function, which is not called with null."),
                    errhint("Pass a request, or drop STRICT from the function.")));
    pg_unreachable();
}

void raise_operation(const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION), errmsg("invalid operation"),
                    errdetail("%s", detail),
                    errhint("Use a function of one jsonb argument that returns jsonb or "
                            "idem_response.")));
    pg_unreachable();
}

}  // namespace idem::pg
