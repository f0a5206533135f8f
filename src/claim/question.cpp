#include "claim/question.hpp"

#include <algorithm>

#include "core/seal.hpp"

#include "claim/result.hpp"
#include "claim/sealing.hpp"
#include "pg/datum.hpp"
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
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("key cannot be derived"),
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
         errmsg("fingerprint cannot be given in this scope"),
         errdetail("The policy compares fields of requests or derives keys from them, and a digest "
                   "has no fields."),
         errhint(
             "Pass request, with method and path, and let the server compute the fingerprint.")));
    pg_unreachable();
}

[[noreturn]] void raise_transactional(const char* argument) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s is not allowed for a transactional claim", argument),
                    errdetail("The claim must end in its transaction: the call passes "
                              "transactional, or the policy of this scope has transactional_only."),
                    errhint("Omit %s, or use a scope for claims that outlast their transaction.",
                            argument)));
    pg_unreachable();
}

// What a policy may refuse without looking at the request.
void check_call(const Question& asked, const core::Policy& policy) {
    if (asked.id.key == nullptr && !asked.derive &&
        policy.on_missing_key == core::OnMissingKey::Error)
        raise_required("key", "Pass the key that the client sent.");
    if (policy.principal_required && pg::bytes_of(asked.id.principal).empty())
        raise_required("principal", "Pass the tenant or user of the request.");
    if (!asked.transactional && !policy.transactional_only) return;
    if (asked.hold) raise_transactional("hold");
    if (asked.lease) raise_transactional("lease");
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

// `nothing_counts`: of the request's fields. A digest of the caller's can't do what the policy says
// of fields.
void settle_fingerprint(Settled* settled, bool* nothing_counts) {
    const Question& asked = settled->asked;
    const config::ScopePolicy& policy = settled->policy;
    if (asked.fingerprint != nullptr) {
        if (policy.fingerprint_fields != nullptr || count_of(policy.exclude_fields) > 0 ||
            policy.values.on_missing_key == core::OnMissingKey::Derive)
            raise_digest();
        settled->fingerprint = asked.fingerprint;
        settled->fingerprint_of = store::kOfCaller;
        return;
    }
    settled->excluded = united(policy.exclude_fields, asked.exclude);
    settled->fingerprint =
        request::fingerprint_of(asked.request, asked.method, asked.path,
                                {policy.fingerprint_fields, settled->excluded}, nothing_counts);
    if (asked.method != nullptr) settled->fingerprint_of |= store::kOfMethod;
    if (asked.path != nullptr) settled->fingerprint_of |= store::kOfPath;
    if (settled->fingerprint == nullptr && policy.values.fingerprint_required &&
        !asked.without_request)
        raise_required("fingerprint", "Pass request or fingerprint.");
}

// A UUID of version 7 (RFC 9562). A random one has its variant and all but 48 of its random bits.
// Keys of one moment lie together in the index.
text* new_key() {
    pg_uuid_t* uuid = DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, static_cast<Datum>(0)));
    std::int64_t millis = (GetCurrentTimestamp() + pg::kUnixEpochShift) / 1000;
    for (int at = 5; at >= 0; at--, millis >>= 8)
        uuid->data[at] = static_cast<unsigned char>(millis);
    uuid->data[6] = (uuid->data[6] & 0x0F) | 0x70;
    return cstring_to_text(DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid))));
}

// A missing key is a new one, or derived: the same for the same request of the same principal in
// the same scope. The fingerprint counts, and not the request: what may differ between two sendings
// of a request makes no other key.
void settle_key(Settled* settled, bool nothing_counts) {
    const store::Identity& given = settled->asked.id;
    settled->id = given;
    if (given.key != nullptr) return;
    text* key = nullptr;
    if (settled->asked.derive ||
        settled->policy.values.on_missing_key == core::OnMissingKey::Derive) {
        if (settled->fingerprint == nullptr) raise_nothing_to_derive("there is none");
        if (nothing_counts) raise_nothing_to_derive("none of its fields counts");
        settled->fingerprint_of |= store::kForKey;
        key = request::in_hex(
            request::fingerprint_of_digest(settled->fingerprint, given.principal, given.scope));
    } else {
        key = new_key();
    }
    settled->id = store::make_identity(given.scope, given.principal, key);
}

// What is forgotten when the window of a derived key ends is a new request, and no late repeat. The
// policy's word about the window is the last. Where it has none, no call keeps a derived key longer
// than it could keep a key of its own.
void settle_spans(Settled* settled) {
    const Question& asked = settled->asked;
    const core::Policy& policy = settled->policy.values;
    settled->ttl = Min(asked.ttl.value_or(policy.ttl), policy.max_ttl);
    settled->lease = Min(asked.lease.value_or(policy.lease), policy.max_lease);
    settled->wait = asked.wait.value_or(policy.wait);
    settled->retention = Max(policy.retention, settled->ttl);
    if ((settled->fingerprint_of & store::kForKey) == 0) return;
    if (policy.on_missing_key != core::OnMissingKey::Derive)
        settled->retention = Min(*asked.derive, Max(policy.retention, policy.max_ttl));
    else
        settled->retention = policy.derive_window == 0 ? settled->ttl : policy.derive_window;
    settled->ttl = Min(settled->ttl, settled->retention);
}

}  // namespace

Settled settle(const Question& question) {
    Settled settled{question, config::policy_for(pg::bytes_of(question.id.scope))};
    const core::Policy& policy = settled.policy.values;
    check_call(question, policy);
    bool nothing_counts = false;
    settle_fingerprint(&settled, &nothing_counts);
    settle_key(&settled, nothing_counts);
    if (policy.store_request) check_size("request", question.request, policy);
    settle_spans(&settled);
    core::Terms* terms = &settled.terms;
    terms->first_sent = question.first_sent;
    // The shortest that the key can have had since the request was first sent. A ttl that this call
    // asks for makes it no longer: earlier calls may have had none.
    terms->memory = settled.retention;
    if (terms->first_sent)
        terms->memory = Min(terms->memory, config::memory_since(pg::bytes_of(settled.id.scope),
                                                                *terms->first_sent));
    terms->max_attempts = policy.max_attempts;
    terms->on_lease_expiry = policy.on_lease_expiry;
    terms->unknown_retry_after = policy.unknown_retry_after;
    // From REPEATABLE READ on a transaction keeps its first snapshot; a statement always keeps its
    // own.
    if (IsolationUsesXactSnapshot()) {
        settled.fixed = GetTransactionSnapshot();
        settled.fixed_since = pg::transaction_snapshot_since();
    } else if (question.same_statement) {
        settled.fixed = GetActiveSnapshot();
        settled.fixed_since = pg::active_snapshot_since();
    }
    return settled;
}

// A client that has made a digest left out what it asks the server to leave out now.
request::FingerprintRule rule_of(const store::Record& record, const Question& question) {
    if ((record.fingerprint_of & store::kOfCaller) != 0) return {nullptr, question.exclude};
    return {record.counted, record.excluded};
}

// Where the fingerprints differ, the policy may count or leave out other fields than it did when
// the record's was taken: then the request is asked once more, by the rule of then.
bool same_request(const store::Record& record, const Settled& question) {
    const Question& asked = question.asked;
    auto same_or_unknown = [](const void* a, const void* b) {
        return a == nullptr || b == nullptr || pg::bytes_of(a) == pg::bytes_of(b);
    };
    // In constant time.
    auto same_fingerprint = [](const bytea* a, const bytea* b) {
        if (a == nullptr || b == nullptr) return true;
        std::string_view left = pg::bytes_of(a);
        return core::same_secret(left, pg::bytes_of(b));
    };
    auto same_fields = [same_or_unknown](const ArrayType* a, const ArrayType* b) {
        return (a == nullptr) == (b == nullptr) && same_or_unknown(a, b);
    };
    if (!same_or_unknown(record.operation, asked.operation)) return false;
    if (question.fingerprint == nullptr) return true;
    const bytea* fingerprint = opened(record, &store::Record::fingerprint);
    if (same_fingerprint(fingerprint, question.fingerprint)) return true;
    if (asked.fingerprint != nullptr || asked.request == nullptr) return false;
    request::FingerprintRule rule = rule_of(record, asked);
    if (same_fields(rule.fields, question.policy.fingerprint_fields) &&
        same_fields(rule.exclude, question.excluded))
        return false;
    return same_fingerprint(fingerprint,
                            request::fingerprint_of(asked.request, asked.method, asked.path, rule));
}

}  // namespace idem::claim
