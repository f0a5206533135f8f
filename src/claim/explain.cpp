// The outcome is that of begin(): the same question is settled in the same way, and foresee() goes
// begin()'s own way. What is added here is what the two requests have to do with each other.

#include "claim/explain.hpp"

#include "claim/abandon.hpp"
#include "claim/due.hpp"
#include "claim/sealing.hpp"
#include "claim/state.hpp"
#include "request/fingerprint.hpp"

namespace idem::claim {

namespace {

// What can't be compared is taken to be the same.
Forecast forecast_of_same(const Settled& question) {
    Settled same = question;
    same.fingerprint = nullptr;
    return foresee(same);
}

void add_comparison(Explanation* explanation) {
    const store::Record& record = explanation->forecast.seen.record;
    const Settled& question = explanation->question;
    if (record.fingerprint.is_null() || question.fingerprint == nullptr) return;
    bool same = same_request(record, question);
    // A digest of the caller's may leave out and count what it likes, and nothing says what it was
    // taken of.
    std::int32_t unlike = (record.fingerprint_of ^ question.fingerprint_of) & ~store::kForKey;
    if (!same && unlike != 0)
        explanation->incomparable =
            (unlike & store::kOfCaller) != 0 ? Incomparable::Digest : Incomparable::MethodAndPath;
    if (explanation->incomparable == Incomparable::No)
        explanation->same = same;
    else
        explanation->forecast = forecast_of_same(question);
}

}  // namespace

// Where a value of the record can't be opened, begin() would raise an error; here the reason is
// told.
Explanation explain(const Question& asked) {
    Explanation result{settle(asked)};
    const Settled& question = result.question;
    const core::Policy& policy = question.policy.values;
    Answer now = get(question.id);
    if (now.has_record) result.closed = why_closed(&now.record);
    if (policy.encrypt) result.no_keys = why_no_keys();
    result.forecast = result.closed != nullptr ? forecast_of_same(question) : foresee(question);
    const Answer& seen = result.forecast.seen;
    if (result.closed == nullptr && seen.has_record) add_comparison(&result);
    if (seen.has_record) {
        result.given_up_at = given_up_at(seen.record, policy);
        result.due_at = due_at(seen.record, policy, result.forecast.now);
    }
    result.lacks_fingerprint = question.fingerprint == nullptr && policy.fingerprint_required;
    bool differ = result.same == false || result.incomparable != Incomparable::No;
    if (!differ || seen.record.request.is_null() || asked.request == nullptr) return result;
    // By the rule by which the record's fingerprint was taken: had the rest been the same, it would
    // be no mismatch.
    auto* differences = static_cast<request::Differences*>(palloc(sizeof(request::Differences)));
    *differences = request::differences_of(opened(seen.record, &store::Record::request),
                                           asked.request, rule_of(seen.record, asked));
    result.differences = differences;
    return result;
}

}  // namespace idem::claim
