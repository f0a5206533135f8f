// A row says what its record was when it was written. Three things change it without a write: time
// passes, the session of its holder ends, and this transaction's own claim waits in memory.

#include "claim/state.hpp"

#include "claim/open_claims.hpp"
#include "config/policy.hpp"
#include "store/store.hpp"

namespace idem::claim {

// A look without the lock can miss a row that is being moved; a row does not move twice that fast.
Answer get(const store::Identity& id) {
    (void)config::policy_for(pg::bytes_of(id.scope));
    Answer answer{};
    store::Record* record = &answer.record;
    if (const OpenClaim* own = open_claim(id)) {
        *record = current_record(own);
        answer.has_record = true;
    } else {
        answer.has_record = store::find(id, record).found || store::find(id, record).found;
    }
    if (answer.has_record) record->status = status_now(*record);
    return answer;
}

core::Known facts_of(const store::Record& record, TimestampTz now) {
    // Times that are absent never lie ahead.
    auto or_past = [](TimestampTz time) { return time == pg::kNoTime ? 0 : time; };
    core::Known facts{};
    facts.status = record.status;
    facts.attempt = record.attempt;
    facts.lease_until = or_past(record.lease_until);
    facts.next_attempt_at = or_past(record.next_attempt_at);
    facts.expires_at = record.expires_at;
    facts.retained_until = record.retained_until;
    facts.holder_gone = now < record.lease_until && record.status == core::Status::InProgress &&
                        record.backend_pid != 0 && !session_lives(record);
    facts.released_by_operator = record.resolved_by != nullptr;
    facts.if_silent = record.if_silent;
    facts.same_fingerprint = true;
    facts.claimed_at = record.claimed_at;
    facts.derived = store::is_derived(record);
    return facts;
}

core::Status status_now(const store::Record& record) {
    core::Terms terms{};
    terms.now = GetCurrentTimestamp();
    return core::status_at(facts_of(record, terms.now), terms);
}

bool claim_lives(const store::Record& record) {
    TimestampTz now = GetCurrentTimestamp();
    return record.status == core::Status::InProgress && core::lives(facts_of(record, now), now);
}

void name_no_backend(store::Record* record) {
    record->backend_pid = 0;
    record->backend_start = pg::kNoTime;
}

// The backend is the one that began when the record says. On a standby it lives always: it runs on
// another server, and only the lease can be judged. The array of processes is asked first: where
// the pid is gone, no status has to be copied. Else that of each backend is, as pg_stat_activity
// does it; an older copy of this transaction's is thrown away.
bool session_lives(const store::Record& record) {
    std::int32_t pid = record.backend_pid;
    if (pid == 0) return false;
    if (RecoveryInProgress()) return true;
    if (pid == MyProcPid) return record.backend_start == MyStartTimestamp;
    if (BackendPidGetProc(pid) == nullptr) return false;
    pgstat_clear_backend_activity_snapshot();
    for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++) {
        const PgBackendStatus& status = pg::backend_status(i)->backendStatus;
        if (status.st_procpid == pid) return status.st_proc_start_timestamp == record.backend_start;
    }
    return false;
}

}  // namespace idem::claim
