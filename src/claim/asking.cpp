#include "claim/asking.hpp"

#include "claim/fingerprint.hpp"
#include "claim/response.hpp"
#include "config/policy.hpp"
#include "pg/errors.hpp"
#include "pg/snapshot.hpp"

namespace idem::claim {

namespace {

text* generated_key() {
    Datum uuid = DirectFunctionCall1(gen_random_uuid, static_cast<Datum>(0));
    return cstring_to_text(DatumGetCString(DirectFunctionCall1(uuid_out, uuid)));
}

text* settled_key(const BeginCall& call, const core::Policy& policy) {
    if (call.id.key != nullptr) return call.id.key;
    if (policy.key_required) pg::raise_required("key", "Pass the key that the client sent.");
    return generated_key();
}

void settle_fingerprint(const BeginCall& call, const config::ScopePolicy& policy, Asking* asking) {
    asking->fingerprint = call.fingerprint;
    if (call.fingerprint == nullptr && call.request != nullptr) {
        asking->hashed = call.request;
        asking->excluded = policy.exclude_fields;
        asking->fingerprint = fingerprint_of(call.request, nullptr, nullptr, asking->excluded);
    }
    if (asking->fingerprint == nullptr && policy.values.fingerprint_required &&
        !call.without_request)
        pg::raise_required("fingerprint", "Pass request or fingerprint.");
}

Jsonb* settled_request(const BeginCall& call, const core::Policy& policy) {
    if (!policy.store_request) return nullptr;
    check_size("request", call.request, policy);
    return call.request;
}

// From REPEATABLE READ on a transaction keeps its first snapshot; a statement always keeps its own.
void settle_snapshot(const BeginCall& call, Asking* asking) {
    if (IsolationUsesXactSnapshot()) {
        asking->fixed = GetTransactionSnapshot();
        asking->fixed_since = pg::transaction_snapshot_since();
    } else if (call.same_statement) {
        asking->fixed = GetActiveSnapshot();
        asking->fixed_since = pg::active_snapshot_since();
    }
}

// The shortest that the key can have had since the request was first sent. A ttl that this call
// asks for makes it no longer: earlier calls may have had none.
std::int64_t settled_memory(const BeginCall& call, std::int64_t retention) {
    if (!call.first_sent) return retention;
    return Min(retention, config::memory_since(pg::bytes_of(call.id.scope), *call.first_sent));
}

core::Question settled_limits(const BeginCall& call, const core::Policy& policy,
                           std::int64_t retention) {
    core::Question asked{};
    asked.memory = settled_memory(call, retention);
    asked.first_sent = call.first_sent;
    asked.max_attempts = policy.max_attempts;
    asked.on_lease_expiry = policy.on_lease_expiry;
    return asked;
}

}  // namespace

Asking settle(const BeginCall& call) {
    config::ScopePolicy policy = config::policy_for(pg::bytes_of(call.id.scope));
    Asking asking{};
    asking.id = call.id;
    asking.id.key = settled_key(call, policy.values);
    settle_fingerprint(call, policy, &asking);
    asking.operation = call.operation;
    asking.request = settled_request(call, policy.values);
    asking.holder = call.holder;
    asking.hold = call.hold;
    asking.ttl = call.ttl.value_or(policy.values.ttl);
    asking.lease = call.lease.value_or(policy.values.lease);
    asking.wait = call.wait_for_ever ? kForEver : call.wait.value_or(policy.values.wait);
    asking.body_limit = static_cast<std::int32_t>(policy.values.max_body_bytes);
    asking.omit_large_body = policy.values.on_large_body == core::OnLargeBody::Omit;
    asking.retention = Max(policy.values.retention, asking.ttl);
    asking.asked = settled_limits(call, policy.values, asking.retention);
    settle_snapshot(call, &asking);
    return asking;
}

}  // namespace idem::claim
