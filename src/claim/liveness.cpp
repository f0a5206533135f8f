#include "claim/liveness.hpp"

namespace idem::claim {

namespace {

// When the backend with this pid began. Everybody's status is copied, as pg_stat_activity does; an
// older copy of this transaction's is thrown away.
TimestampTz start_of(std::int32_t pid) {
    pgstat_clear_backend_activity_snapshot();
    for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++) {
        const PgBackendStatus& status = pg::backend_status(i)->backendStatus;
        if (status.st_procpid == pid) return status.st_proc_start_timestamp;
    }
    return pg::kNoTime;
}

}  // namespace

void name_this_backend(store::Record* record) {
    record->backend_pid = MyProcPid;
    record->backend_start = MyStartTimestamp;
}

void name_no_backend(store::Record* record) {
    record->backend_pid = 0;
    record->backend_start = pg::kNoTime;
}

// The array of processes is asked first: where the pid is gone, nobody's status has to be copied.
bool backend_lives(std::int32_t pid, TimestampTz start) {
    if (RecoveryInProgress()) return true;
    if (pid == MyProcPid) return start == MyStartTimestamp;
    return BackendPidGetProc(pid) != nullptr && start_of(pid) == start;
}

bool holder_is_gone(const store::Record& record) {
    return record.status == core::Status::InProgress && record.backend_pid != 0 &&
           !backend_lives(record.backend_pid, record.backend_start);
}

bool claim_lives(const store::Record& record, TimestampTz now) {
    return record.status == core::Status::InProgress && now < record.lease_until &&
           !holder_is_gone(record);
}

bool is_unknown(const store::Record& record, TimestampTz now) {
    return record.status == core::Status::InProgress && record.no_takeover &&
           !claim_lives(record, now);
}

}  // namespace idem::claim
