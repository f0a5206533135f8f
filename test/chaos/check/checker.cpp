#include "check/checker.hpp"

#include "check/branches.hpp"
#include "check/linearize.hpp"
#include "check/serializable.hpp"
#include "check/sight.hpp"

namespace idem::chaos {
namespace {

using Rule = std::vector<Violation> (*)(const History&);

constexpr Rule kRules[] = {check_effects, check_answers,      check_tokens,   check_grants,
                           check_errors,  check_waits,        check_foreign,  check_closed,
                           check_sight,   check_serializable, check_forgotten};

// Every key must fit an order; keys are independent (invariants 10 and 13).
std::map<Key, Verdict> check_keys(const History& history, const std::map<Key, Verdict>& earlier,
                                  Judgement* judgement) {
    std::map<Key, Verdict> verdicts;
    for (const Timeline& timeline : timelines(history)) {
        const auto before = earlier.find(timeline.key);
        const bool goes_on = before != earlier.end();
        std::vector<Record> initial{Record{}};
        if (goes_on) initial = before->second.passed;
        Verdict verdict = linearize(timeline, history.scopes.at(timeline.key.scope), initial);
        // The key may have begun with another record, which was left out.
        const bool uncertain = goes_on && before->second.cut_off;
        ++judgement->keys;
        judgement->steps += timeline.steps.size();
        if (verdict.fit == Fit::Undecided || (verdict.fit == Fit::Illegal && uncertain))
            judgement->undecided.push_back(verdict.explanation);
        else if (verdict.fit == Fit::Illegal)
            judgement->violations.push_back({verdict.invariant, verdict.explanation});
        verdicts.emplace(timeline.key, std::move(verdict));
    }
    return verdicts;
}

// The calls from one moment to another, of the server that lost its place then.
History part(const History& history, Micros from, Micros to) {
    History result = history;
    result.calls.clear();
    for (const Call& call : history.calls)
        if (call.invoked >= from && call.invoked < to) result.calls.push_back(call);
    roll_back_open(&result.calls, [to](const Call&) { return to; });
    return result;
}

// A commit confirmed by an old primary may or may not have reached the new one.
History with_old_commits_unknown(History history) {
    for (Call& call : history.calls) {
        const bool commits = call.alone || call.function == Function::Commit;
        if (commits && before_last_forgetting(history, call) && call.result == Result::Ok)
            call.result = Result::Info;
    }
    return history;
}

void add(const std::vector<Violation>& violations, Judgement* judgement) {
    judgement->violations.insert(judgement->violations.end(), violations.begin(), violations.end());
}

// Every key continues from one of the records that it passed through on earlier primaries. Effects
// are those of the last primary: each of its records must have one, and the reverse.
void check_failovers(const History& history, Judgement* judgement) {
    std::map<Key, Verdict> earlier;
    Micros from = 0;
    for (const Micros failover : history.forgetful_failovers) {
        History old_primary = part(history, from, failover);
        old_primary.effects_known = false;
        for (auto& [key, verdict] : check_keys(old_primary, earlier, judgement))
            earlier[key] = std::move(verdict);
        from = failover;
    }
    const History new_primary = part(history, from, kNever);
    (void)check_keys(new_primary, earlier, judgement);
    add(check_effects(with_old_commits_unknown(history)), judgement);
    add(check_waits(new_primary), judgement);
    History without_effects = history;
    without_effects.effects_known = false;
    for (const Rule rule :
         {check_answers, check_tokens, check_errors, check_closed, check_sight, check_serializable})
        add(rule(without_effects), judgement);
}

void check_one(const History& history, Judgement* judgement) {
    if (!history.forgetful_failovers.empty()) return check_failovers(history, judgement);
    for (const Rule rule : kRules) add(rule(history), judgement);
    (void)check_keys(history, {}, judgement);
}

}  // namespace

Judgement judge(const History& history) {
    Judgement judgement;
    if (history.takeovers.empty()) {
        check_one(history, &judgement);
    } else {
        add(check_past(history), &judgement);
        check_one(main_line(history), &judgement);
    }
    return judgement;
}

}  // namespace idem::chaos
