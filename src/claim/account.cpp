#include "claim/account.hpp"

#include "stats/events.hpp"

namespace idem::claim {

void account_for(const Answer& answer, std::int64_t waited) {
    const store::Identity& id = answer.record.id;
    stats::account_for({*answer.outcome, answer.claim, pg::bytes_of(id.scope),
                        pg::bytes_of(id.principal), pg::bytes_of(id.key),
                        answer.has_record ? answer.record.attempt : 0, waited});
}

void account_for_result(const store::Record& record) {
    stats::account_for_result(pg::bytes_of(record.id.scope), record.status);
}

}  // namespace idem::claim
