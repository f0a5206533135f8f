#include "claim/account.hpp"

#include "stats/events.hpp"

namespace idem::claim {

namespace {

using stats::Counter;

Counter counter_of(core::Outcome outcome) {
    switch (outcome) {
        case core::Outcome::Execute:
            return Counter::Executed;
        case core::Outcome::InProgress:
            return Counter::InProgress;
        case core::Outcome::Mismatch:
            return Counter::Mismatches;
        case core::Outcome::Replay:
            return Counter::Replayed;
        case core::Outcome::RetryLater:
            return Counter::RetryLater;
        case core::Outcome::Exhausted:
            return Counter::Exhausted;
        case core::Outcome::Expired:
            return Counter::Expired;
        case core::Outcome::Unknown:
            break;
    }
    return Counter::Unknown;
}

void count_answer(const Answer& answer, std::int64_t waited) {
    std::string_view scope = pg::bytes_of(answer.record.id.scope);
    stats::count(scope, counter_of(*answer.outcome));
    if (answer.claim == core::Claim::Takeover) stats::count(scope, Counter::Takeovers);
    if (answer.claim == core::Claim::Retry) stats::count(scope, Counter::Retries);
    if (waited == 0) return;
    stats::count(scope, Counter::Waits);
    stats::count(scope, Counter::WaitMicros, static_cast<std::uint64_t>(waited));
}

stats::Event event_of(const Answer& answer, std::int64_t waited) {
    const store::Identity& id = answer.record.id;
    return {*answer.outcome,
            answer.claim,
            pg::bytes_of(id.scope),
            pg::bytes_of(id.principal),
            pg::bytes_of(id.key),
            answer.has_record ? answer.record.attempt : 0,
            waited};
}

}  // namespace

void account_for(const Answer& answer, std::int64_t waited) {
    count_answer(answer, waited);
    stats::log_event(event_of(answer, waited));
}

void account_for_result(const store::Record& record) {
    stats::count(pg::bytes_of(record.id.scope),
                 record.status == core::Status::Completed ? Counter::Completed : Counter::Failed);
}

}  // namespace idem::claim
