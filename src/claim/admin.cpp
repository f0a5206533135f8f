#include "claim/admin.hpp"

#include "core/outcome.hpp"

#include "claim/grant.hpp"
#include "claim/key_lock.hpp"
#include "claim/response.hpp"
#include "config/policy.hpp"
#include "pg/errors.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

config::ScopePolicy enter(const ClaimRef& ref) {
    PreventCommandIfReadOnly(ref.function);
    PreventCommandDuringRecovery(ref.function);
    if (open_claim(ref.id) != nullptr)
        pg::raise_own_claim_open();
    return config::policy_for(pg::bytes_of(ref.id.scope));
}

bool is_final(core::Status status) {
    return status == core::Status::Completed || status == core::Status::Failed;
}

const char* word_of(core::Status status) {
    std::string_view word = core::status_word(status);
    return pnstrdup(word.data(), word.size());
}

core::Status status_after(Resolution resolution) {
    switch (resolution) {
        case Resolution::Release:
            return core::Status::Retryable;
        case Resolution::Complete:
            return core::Status::Completed;
        case Resolution::Fail:
            break;
    }
    return core::Status::Failed;
}

void mark_resolved(Resolution resolution, text* error, store::Record* record) {
    TimestampTz now = GetCurrentTimestamp();
    record->status = status_after(resolution);
    record->token = new_token(record->token);
    record->held = false;
    record->finished_at = now;
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = resolution == Resolution::Release ? now : pg::kNoTime;
    record->error = resolution == Resolution::Complete ? nullptr : error;
    record->resolved_by = cstring_to_text(GetUserNameFromId(GetSessionUserId(), false));
}

bool lease_lives(const store::Record& record) {
    return record.status == core::Status::InProgress && record.lease_until > GetCurrentTimestamp();
}

}  // namespace

void resolve(const ClaimRef& ref, Resolution resolution, const Response& response, text* error) {
    config::ScopePolicy policy = enter(ref);
    lock(ref.id);
    store::Record record;
    if (!store::store().find(ref.id, &record))
        pg::raise_no_claim();
    if (is_final(record.status))
        pg::raise_final(word_of(record.status));
    std::int64_t old_token = record.token;
    mark_resolved(resolution, error, &record);
    keep_response(response, policy, &record);
    if (!store::store().update(record, old_token))
        pg::raise_claim_overtaken();
}

bool look(const store::Identity& id, Answer* answer) {
    (void)config::policy_for(pg::bytes_of(id.scope));
    *answer = Answer{};
    answer->has_record = store::store().find(id, &answer->record);
    return answer->has_record;
}

bool forget(const ClaimRef& ref) {
    (void)enter(ref);
    lock(ref.id);
    store::Record record;
    if (!store::store().find(ref.id, &record)) {
        unlock(ref.id);
        return false;
    }
    if (lease_lives(record))
        pg::raise_lease_lives();
    return store::store().remove(record.id, record.token);
}

}  // namespace idem::claim
