#include "claim/history.hpp"

#include "claim/sealing.hpp"

namespace idem::claim {

namespace {

store::AttemptEnd end_with(core::Status status) {
    switch (status) {
        case core::Status::Completed:
            return store::AttemptEnd::Completed;
        case core::Status::Failed:
            return store::AttemptEnd::Failed;
        case core::Status::Exhausted:
            return store::AttemptEnd::Exhausted;
        case core::Status::Unknown:
            return store::AttemptEnd::Unknown;
        case core::Status::InProgress:
        case core::Status::Retryable:
            break;
    }
    return store::AttemptEnd::Retryable;
}

}  // namespace

void keep_attempt(const core::Policy& policy, const store::Record& record, store::AttemptEnd how) {
    if (!policy.keep_history) return;
    TimestampTz ended = GetCurrentTimestamp();
    std::int64_t span = Max(policy.retention, policy.ttl);
    store::Record kept = record;
    // Until an attempt brings a result, its record shows that of the one before.
    if (how == store::AttemptEnd::Released || how == store::AttemptEnd::TakenOver ||
        how == store::AttemptEnd::Silent) {
        kept.error = nullptr;
        kept.status_code.reset();
        kept.resolved_by = nullptr;
    }
    seal(&kept, policy.encrypt);
    store::add_attempt({&kept, how, ended, pg::after(ended, span)});
}

void take_back_attempt(const store::Record& taken_over) {
    store::remove_attempt(taken_over.id, taken_over.token);
}

void keep_ended_attempt(const core::Policy& policy, const store::Record& record) {
    keep_attempt(policy, record, end_with(record.status));
}

}  // namespace idem::claim
