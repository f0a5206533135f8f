#include "check/checker.hpp"

#include "check/linearize.hpp"
#include "check/serializable.hpp"
#include "check/sight.hpp"

namespace idem::chaos {
namespace {

using Rule = std::vector<Violation> (*)(const History&);

constexpr Rule kRules[] = {check_effects, check_answers,     check_tokens,  check_grants,
                           check_errors,  check_waits,       check_foreign, check_closed,
                           check_sight,   check_serializable};

// Every key must fit an order of its own; keys are independent (invariants 10 and 13).
std::map<Key, Verdict> check_keys(const History& history, const std::map<Key, Verdict>& earlier,
                                  Judgement* judgement) {
    std::map<Key, Verdict> verdicts;
    for (const Timeline& timeline : timelines(history)) {
        const auto before = earlier.find(timeline.key);
        std::vector<Record> initial{Record{}};
        if (before != earlier.end()) initial = before->second.passed;
        Verdict verdict = linearize(timeline, history.scopes.at(timeline.key.scope), initial);
        ++judgement->keys;
        judgement->steps += timeline.steps.size();
        if (!verdict.legal)
            judgement->violations.push_back({verdict.invariant, verdict.explanation});
        verdicts.emplace(timeline.key, std::move(verdict));
    }
    return verdicts;
}

History part(const History& history, bool before) {
    History result = history;
    result.calls.clear();
    for (const Call& call : history.calls)
        if ((call.invoked < history.forgetful_failover) == before) result.calls.push_back(call);
    return result;
}

// What the old primary has confirmed may have reached the new one or not.
History with_old_commits_unknown(History history) {
    for (Call& call : history.calls) {
        const bool commits = call.alone || call.function == Function::Commit;
        if (commits && call.invoked < history.forgetful_failover && call.result == Result::Ok)
            call.result = Result::Info;
    }
    return history;
}

// Every key goes on from one of the records that it passed through on the old primary. Effects are
// those of the new one: each of its records must have one, and the reverse.
void check_failover(const History& history, Judgement* judgement) {
    History old_primary = part(history, true);
    old_primary.effects_known = false;
    const std::map<Key, Verdict> earlier = check_keys(old_primary, {}, judgement);
    const History new_primary = part(history, false);
    (void)check_keys(new_primary, earlier, judgement);
    const auto add = [&](const std::vector<Violation>& violations) {
        for (const Violation& violation : violations) judgement->violations.push_back(violation);
    };
    add(check_effects(with_old_commits_unknown(history)));
    add(check_waits(new_primary));
    History without_effects = history;
    without_effects.effects_known = false;
    for (const Rule rule :
         {check_answers, check_tokens, check_errors, check_closed, check_sight, check_serializable})
        add(rule(without_effects));
}

}  // namespace

Judgement judge(const History& history) {
    Judgement judgement;
    if (history.forgetful_failover != 0) {
        check_failover(history, &judgement);
        return judgement;
    }
    for (const Rule rule : kRules)
        for (const Violation& violation : rule(history)) judgement.violations.push_back(violation);
    (void)check_keys(history, {}, &judgement);
    return judgement;
}

}  // namespace idem::chaos
