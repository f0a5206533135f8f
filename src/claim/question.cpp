#include "claim/question.hpp"

#include <algorithm>

#include "claim/result.hpp"
#include "claim/sealing.hpp"
#include "config/policy.hpp"
#include "pg/snapshot.hpp"

namespace idem::claim {

namespace {

[[noreturn]] void raise_required(const char* what, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s is required", what),
                    errdetail("The policy of this scope requires it."), errhint("%s", hint)));
    pg_unreachable();
}

[[noreturn]] void raise_nothing_to_derive(const char* why) {
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key can't be derived"),
             errdetail("The call, or the policy of this scope, derives a missing key from the "
                       "request, and %s.",
                       why),
             errhint("Pass key or request.")));
    pg_unreachable();
}

[[noreturn]] void raise_digest() {
    ereport(
        ERROR,
        (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
         errmsg("fingerprint can't be given in this scope"),
         errdetail("Its policy compares fields of requests, or derives keys from them, and a "
                   "digest has no fields."),
         errhint(
             "Pass request, with method and path, and let the server compute the fingerprint.")));
    pg_unreachable();
}

text* generated_key() {
    Datum uuid = DirectFunctionCall1(gen_random_uuid, static_cast<Datum>(0));
    return cstring_to_text(DatumGetCString(DirectFunctionCall1(uuid_out, uuid)));
}

// The same for the same request of the same principal in the same scope. The fingerprint counts,
// and not the request: what may differ between two sendings of a request makes no other key.
text* derived_key(const Question& question) {
    if (question.fingerprint == nullptr) raise_nothing_to_derive("there is none");
    if (question.nothing_counts) raise_nothing_to_derive("none of its fields counts");
    return request::in_hex(request::fingerprint_of_digest(
        question.fingerprint, question.id.principal, question.id.scope));
}

[[noreturn]] void raise_transactional(const char* argument) {
    ereport(
        ERROR,
        (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
         errmsg("%s is not possible for a claim that must end in its transaction", argument),
         errdetail("The call says transactional, or the policy of this scope says "
                   "transactional_only."),
         errhint("Omit %s, or use a scope for claims that outlast their transaction.", argument)));
    pg_unreachable();
}

void settle_end(const core::Policy& policy, Question* question) {
    question->transactional |= policy.transactional_only;
    if (!question->transactional) return;
    if (question->hold) raise_transactional("hold");
    if (question->lease) raise_transactional("lease");
}

void settle_principal(const core::Policy& policy, const Question& question) {
    if (policy.principal_required && pg::bytes_of(question.id.principal).empty())
        raise_required("principal", "Pass on whose behalf the request comes.");
}

// The request's fingerprint is known.
void settle_key(const core::Policy& policy, Question* question) {
    const store::Identity& given = question->id;
    if (given.key != nullptr) return;
    question->derived_key = question->derive || policy.on_missing_key == core::OnMissingKey::Derive;
    if (question->derived_key) question->fingerprint_of |= store::kForKey;
    text* key = question->derived_key ? derived_key(*question) : generated_key();
    question->id = store::make_identity(given.scope, given.principal, key);
}

void require_key(const core::Policy& policy, const Question& question) {
    if (question.id.key == nullptr && !question.derive &&
        policy.on_missing_key == core::OnMissingKey::Error)
        raise_required("key", "Pass the key that the client sent.");
}

int count_of(ArrayType* array) {
    return array == nullptr ? 0 : ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

// The entries of both, either of which may be nullptr.
ArrayType* united(ArrayType* a, ArrayType* b) {
    if (count_of(b) == 0) return a;
    if (count_of(a) == 0) return b;
    Datum* entries[2];
    bool* nulls;
    int counts[2];
    deconstruct_array(a, TEXTOID, -1, false, TYPALIGN_INT, &entries[0], &nulls, &counts[0]);
    (void)pg::text_list(b, "exclude");  // refuses null elements
    deconstruct_array(b, TEXTOID, -1, false, TYPALIGN_INT, &entries[1], &nulls, &counts[1]);
    auto count = static_cast<std::size_t>(counts[0]) + static_cast<std::size_t>(counts[1]);
    auto* all = static_cast<Datum*>(palloc(sizeof(Datum) * count));
    std::copy_n(entries[1], counts[1], std::copy_n(entries[0], counts[0], all));
    return construct_array(all, static_cast<int>(count), TEXTOID, -1, false, TYPALIGN_INT);
}

// A digest of the caller's can't do what the policy says of fields.
void check_digest(const config::ScopePolicy& policy) {
    if (policy.fingerprint_fields != nullptr || count_of(policy.exclude_fields) > 0 ||
        policy.values.on_missing_key == core::OnMissingKey::Derive)
        raise_digest();
}

void take_fingerprint(const config::ScopePolicy& policy, Question* question) {
    question->hashed = question->request;
    question->counted = policy.fingerprint_fields;
    question->excluded = united(policy.exclude_fields, question->exclude);
    question->fingerprint =
        request::fingerprint_of(question->request, question->method, question->path,
                                {question->counted, question->excluded}, &question->nothing_counts);
    if (question->method != nullptr) question->fingerprint_of |= store::kOfMethod;
    if (question->path != nullptr) question->fingerprint_of |= store::kOfPath;
}

void settle_fingerprint(const config::ScopePolicy& policy, Question* question) {
    if (question->fingerprint == nullptr) {
        take_fingerprint(policy, question);
    } else {
        check_digest(policy);
        question->fingerprint_of = store::kOfCaller;
    }
    if (question->fingerprint == nullptr && policy.values.fingerprint_required &&
        !question->without_request)
        raise_required("fingerprint", "Pass request or fingerprint.");
}

void settle_stored_request(const core::Policy& policy, Question* question) {
    if (!policy.store_request) return;
    check_size("request", question->request, policy);
    question->stored_request = question->request;
}

// How long a derived key is remembered. The policy's word is the last.
std::int64_t window_of(const core::Policy& policy, const Question& question) {
    if (policy.on_missing_key != core::OnMissingKey::Derive) return *question.derive;
    return policy.derive_window == 0 ? *question.ttl : policy.derive_window;
}

void settle_spans(const core::Policy& policy, Question* question) {
    question->ttl = Min(question->ttl.value_or(policy.ttl), policy.max_ttl);
    question->lease = Min(question->lease.value_or(policy.lease), policy.max_lease);
    question->wait = question->wait.value_or(policy.wait);
    question->retention = Max(policy.retention, *question->ttl);
    if (!question->derived_key) return;
    // What is forgotten then is a new request, and no late repeat.
    question->retention = window_of(policy, *question);
    question->ttl = Min(*question->ttl, question->retention);
}

void settle_result(const core::Policy& policy, Question* question) {
    question->body_limit = static_cast<std::int32_t>(policy.max_body_bytes);
    question->omit_large_body = policy.on_large_body == core::OnLargeBody::Omit;
    question->encrypt = policy.encrypt;
    question->keep_history = policy.keep_history;
}

// The shortest that the key can have had since the request was first sent. A ttl that this call
// asks for makes it no longer: earlier calls may have had none.
std::int64_t memory_of(const Question& question) {
    if (!question.first_sent) return question.retention;
    return Min(question.retention,
               config::memory_since(pg::bytes_of(question.id.scope), *question.first_sent));
}

void settle_terms(const core::Policy& policy, Question* question) {
    question->terms.memory = memory_of(*question);
    question->terms.first_sent = question->first_sent;
    question->terms.max_attempts = policy.max_attempts;
    question->terms.on_lease_expiry = policy.on_lease_expiry;
    question->terms.unknown_retry_after = policy.unknown_retry_after;
}

// From REPEATABLE READ on a transaction keeps its first snapshot; a statement always keeps its own.
void settle_snapshot(Question* question) {
    if (IsolationUsesXactSnapshot()) {
        question->fixed = GetTransactionSnapshot();
        question->fixed_since = pg::transaction_snapshot_since();
    } else if (question->same_statement) {
        question->fixed = GetActiveSnapshot();
        question->fixed_since = pg::active_snapshot_since();
    }
}

bool same_bytes_if_known(const void* a, const void* b) {
    return a == nullptr || b == nullptr || pg::bytes_of(a) == pg::bytes_of(b);
}

bool same_fields(const ArrayType* a, const ArrayType* b) {
    return (a == nullptr) == (b == nullptr) && same_bytes_if_known(a, b);
}

// The policy may count or leave out other fields than it did when the record's fingerprint was
// taken.
bool same_by_its_rule(const store::Record& record, const bytea* fingerprint,
                      const Question& question) {
    if (question.hashed == nullptr) return false;
    request::FingerprintRule rule = rule_of(record, question);
    if (same_fields(rule.fields, question.counted) && same_fields(rule.exclude, question.excluded))
        return false;
    return same_if_known(fingerprint, request::fingerprint_of(question.hashed, question.method,
                                                              question.path, rule));
}

}  // namespace

// A client that has made a digest left out what it asks the server to leave out now.
request::FingerprintRule rule_of(const store::Record& record, const Question& question) {
    if ((record.fingerprint_of & store::kOfCaller) != 0) return {nullptr, question.exclude};
    return {record.counted, record.excluded};
}

Question settle(Question question) {
    config::ScopePolicy policy = config::policy_for(pg::bytes_of(question.id.scope));
    require_key(policy.values, question);
    settle_principal(policy.values, question);
    settle_end(policy.values, &question);
    settle_fingerprint(policy, &question);
    settle_key(policy.values, &question);
    settle_stored_request(policy.values, &question);
    settle_spans(policy.values, &question);
    settle_result(policy.values, &question);
    settle_terms(policy.values, &question);
    settle_snapshot(&question);
    return question;
}

bool same_request(const store::Record& record, const Question& question) {
    if (!same_bytes_if_known(record.operation, question.operation)) return false;
    if (question.fingerprint == nullptr) return true;
    const bytea* fingerprint = opened(record, &store::Record::fingerprint);
    return same_if_known(fingerprint, question.fingerprint) ||
           same_by_its_rule(record, fingerprint, question);
}

}  // namespace idem::claim
