// An operator does to a record what its holder would do, without the holder's token and under the
// key's lock; who only looks takes none. An own open claim is refused: its record is not written
// yet, so that there would be two truths of one key in one transaction.

#include "claim/operator.hpp"

#include "core/outcome.hpp"

#include "claim/locks.hpp"
#include "claim/sealing.hpp"
#include "claim/token.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

config::ScopePolicy enter_as_operator(const ClaimRef& ref) {
    if (open_claim(ref.id) != nullptr) raise_own_claim_open();
    return enter(ref);
}

[[noreturn]] void raise_final(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is already %s", status),
                    errdetail("A result that clients have seen is never changed."),
                    errhint("idem_forget removes the record.")));
    pg_unreachable();
}

[[noreturn]] void raise_lease_lives() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the key is being executed"),
                    errdetail("The lease of its claim has not run out."),
                    errhint("Wait for it, or end it with idem_resolve.")));
    pg_unreachable();
}

bool is_final(core::Status status) {
    return status == core::Status::Completed || status == core::Status::Failed;
}

const char* word_of(core::Status status) {
    std::string_view word = core::entry_of(status).word;
    return pnstrdup(word.data(), word.size());
}

// The old holder's token dies, and the record says who decided.
void mark_resolved(core::Resolution resolution, text* error, store::Record* record) {
    mark_ended(core::entry_of(resolution).status, record);
    record->token = new_token(record->token);
    record->error = clipped_error(error);
    record->resolved_by = cstring_to_text(GetUserNameFromId(GetSessionUserId(), false));
    if (resolution == core::Resolution::Release) record->next_attempt_at = record->finished_at;
}

// A look without the lock can miss a row that is being moved; nobody moves one twice that fast.
bool seen(const store::Identity& id, store::Record* record) {
    return store::find(id, record).found || store::find(id, record).found;
}

// No policy of today is asked: what it says will count for whoever begins.
core::Status status_now(const store::Record& record) {
    core::Terms terms{};
    terms.now = GetCurrentTimestamp();
    return core::status_at(facts_of(record, terms.now), terms);
}

}  // namespace

void resolve(const ClaimRef& ref, core::Resolution resolution, const Response& response,
             text* error) {
    config::ScopePolicy policy = enter_as_operator(ref);
    store::Record record;
    if (!lock_and_find(ref.id, &record)) raise_no_claim();
    if (is_final(record.status)) raise_final(word_of(record.status));
    store::Version unresolved = store::version_of(record);
    mark_resolved(resolution, error, &record);
    keep_as_fresh(policy.values, &record);
    keep_if_undecided(policy.values, &record);
    allow_as_claimed(record, &policy.values);
    if (resolution != core::Resolution::Release) keep_response(response, policy, &record);
    seal(&record, policy.values.encrypt);
    if (!store::update(record, unresolved)) store::raise_claim_overtaken();
}

Answer get(const store::Identity& id) {
    (void)config::policy_for(pg::bytes_of(id.scope));
    Answer answer{};
    const OpenClaim* own = open_claim(id);
    if (own != nullptr) answer.record = current_record(own);
    answer.has_record = own != nullptr || seen(id, &answer.record);
    if (answer.has_record) answer.record.status = status_now(answer.record);
    return answer;
}

bool claim_lives(const store::Record& record) {
    TimestampTz now = GetCurrentTimestamp();
    return record.status == core::Status::InProgress && core::lives(facts_of(record, now), now);
}

bool forget(const ClaimRef& ref) {
    (void)enter_as_operator(ref);
    store::Record record;
    while (lock_and_find(ref.id, &record)) {
        if (claim_lives(record)) raise_lease_lives();
        if (store::remove(record.id, store::version_of(record))) return true;
        // Somebody who ignores our lock has changed it since: what it says now counts.
        unlock(ref.id);
        CHECK_FOR_INTERRUPTS();
    }
    unlock(ref.id);
    return false;
}

}  // namespace idem::claim
