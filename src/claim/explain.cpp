// The outcome is that of begin(): the same question is settled in the same way, and foresee() goes
// begin()'s own way. What is added here is what the two requests have to do with each other.

#include "claim/explain.hpp"

#include "claim/abandon.hpp"
#include "claim/fingerprint.hpp"
#include "claim/operator.hpp"
#include "claim/sealing.hpp"
#include "config/policy.hpp"

namespace idem::claim {

namespace {

// Nobody who only looks has to have the request.
Question without_duty(const Question& given) {
    Question question = given;
    question.without_request = true;
    return question;
}

void add_policy(const core::Policy& policy, Explanation* explanation) {
    const Question& question = explanation->question;
    const Answer& seen = explanation->forecast.seen;
    explanation->given_up_at = seen.has_record ? given_up_at(seen.record, policy) : pg::kNoTime;
    explanation->lacks_fingerprint = question.fingerprint == nullptr && policy.fingerprint_required;
}

// begin() would raise an error; who wants to know why is told.
void add_keys(Explanation* explanation) {
    const Question& question = explanation->question;
    Answer seen = get(question.id);
    if (seen.has_record) explanation->closed = why_closed(&seen.record);
    if (question.encrypt) explanation->no_keys = why_no_keys();
}

// What can't be compared is taken to be the same.
Forecast forecast_of(const Explanation& explanation) {
    Question question = explanation.question;
    if (explanation.closed != nullptr) question.fingerprint = nullptr;
    return foresee(question);
}

std::optional<bool> compared(const store::Record& record, const Question& question) {
    if (record.fingerprint.is_null() || question.fingerprint == nullptr) return std::nullopt;
    return same_request(record, question);
}

// By the rule by which the record's fingerprint was taken: had the rest been the same, it would be
// no mismatch.
Differences* differences(const store::Record& record, const Question& question) {
    if (record.request.is_null() || question.request == nullptr) return nullptr;
    auto* found = static_cast<Differences*>(palloc(sizeof(Differences)));
    *found = differences_of(opened(record, &store::Record::request), question.request,
                            {record.counted, record.excluded});
    return found;
}

}  // namespace

Explanation explain(const Question& given) {
    Explanation result{};
    result.question = settle(without_duty(given));
    core::Policy policy = config::policy_for(pg::bytes_of(result.question.id.scope)).values;
    add_keys(&result);
    result.forecast = forecast_of(result);
    add_policy(policy, &result);
    if (!result.forecast.seen.has_record || result.closed != nullptr) return result;
    const store::Record& record = result.forecast.seen.record;
    result.same = compared(record, result.question);
    if (result.same == false) result.differences = differences(record, result.question);
    return result;
}

}  // namespace idem::claim
