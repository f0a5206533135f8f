// The outcome is that of begin(): the same question is settled in the same way, and foresee() goes
// begin()'s own way. What is added here is what the two requests have to do with each other.

#include "claim/explain.hpp"

#include "claim/abandon.hpp"
#include "claim/operator.hpp"
#include "claim/sealing.hpp"
#include "config/policy.hpp"
#include "request/fingerprint.hpp"

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

Forecast forecast_of_same(const Question& given) {
    Question question = given;
    question.fingerprint = nullptr;
    return foresee(question);
}

bool has_both(const store::Record& record, const Question& question) {
    return !record.fingerprint.is_null() && question.fingerprint != nullptr;
}

// A digest of the caller's may leave out and count what it likes, and nobody says what it was
// taken of.
Incomparable incomparable(const store::Record& record, const Question& question) {
    std::int32_t unlike = (record.fingerprint_of ^ question.fingerprint_of) & ~store::kForKey;
    if (unlike == 0) return Incomparable::No;
    return (unlike & store::kOfCaller) != 0 ? Incomparable::Digest : Incomparable::MethodAndPath;
}

void add_comparison(Explanation* explanation) {
    const store::Record& record = explanation->forecast.seen.record;
    const Question& question = explanation->question;
    if (!has_both(record, question)) return;
    bool same = same_request(record, question);
    if (!same) explanation->incomparable = incomparable(record, question);
    if (explanation->incomparable == Incomparable::No) explanation->same = same;
}

// What can't be compared is taken to be the same.
void add_forecast(Explanation* explanation) {
    const Question& question = explanation->question;
    explanation->forecast =
        explanation->closed != nullptr ? forecast_of_same(question) : foresee(question);
    if (explanation->closed != nullptr || !explanation->forecast.seen.has_record) return;
    add_comparison(explanation);
    if (explanation->incomparable != Incomparable::No)
        explanation->forecast = forecast_of_same(question);
}

// By the rule by which the record's fingerprint was taken: had the rest been the same, it would be
// no mismatch.
request::Differences* differences(const store::Record& record, const Question& question) {
    if (record.request.is_null() || question.request == nullptr) return nullptr;
    auto* found = static_cast<request::Differences*>(palloc(sizeof(request::Differences)));
    *found = request::differences_of(opened(record, &store::Record::request), question.request,
                                     rule_of(record, question));
    return found;
}

}  // namespace

Explanation explain(const Question& given) {
    Explanation result{};
    result.question = settle(without_duty(given));
    core::Policy policy = config::policy_for(pg::bytes_of(result.question.id.scope)).values;
    add_keys(&result);
    add_forecast(&result);
    add_policy(policy, &result);
    if (result.same == false || result.incomparable != Incomparable::No)
        result.differences = differences(result.forecast.seen.record, result.question);
    return result;
}

}  // namespace idem::claim
