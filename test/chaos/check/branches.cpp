#include "check/branches.hpp"

#include <algorithm>

#include "check/timeline.hpp"

namespace idem::chaos {
namespace {

bool ends(const Call& call) {
    return call.alone || call.function == Function::Commit || call.function == Function::Rollback;
}

bool commits(const Call& call) {
    return call.alone || call.function == Function::Commit;
}

// Writes, if its transaction is committed.
bool writes(const Call& call) {
    switch (call.function) {
        case Function::Begin:
        case Function::Execute:
            return call.answer.outcome == "execute";
        case Function::Get:
            return false;
        default:
            return call.answer.yes;
    }
}

class Forks {
  public:
    explicit Forks(const History& history) : takeovers_(history.takeovers) {
        for (const Call& call : history.calls) {
            if (call.timeline == 0) continue;
            const auto [since, first] = takeovers_.emplace(call.timeline, call.invoked);
            if (!first) since->second = std::min(since->second, call.invoked);
        }
    }

    // When the next timeline began.
    Micros end_of(int timeline) const {
        Micros end = kNever;
        for (auto next = takeovers_.upper_bound(timeline); next != takeovers_.end(); ++next)
            end = std::min(end, next->second);
        return timeline == 0 ? kNever : end;
    }

    // All but the first, which took over from no other.
    std::vector<Micros> takeovers() const {
        std::vector<Micros> moments;
        for (const auto& [timeline, since] : takeovers_) moments.push_back(since);
        if (!moments.empty()) moments.erase(moments.begin());
        return moments;
    }

    bool is_past(const Call& call) const { return call.invoked >= end_of(call.timeline); }

  private:
    std::map<int, Micros> takeovers_;
};

// What the call was told while its timeline was the last one, or may have changed there.
bool belongs(const Call& call, Micros end) {
    if (call.invoked >= end) return false;
    if (call.returned < end) return true;
    return ends(call) && (call.result == Result::Info || !call.alone || writes(call));
}

Call rollback_of(const Call& last, Micros end) {
    Call call;
    call.session = last.session;
    call.connection = last.connection;
    call.timeline = last.timeline;
    call.transaction = last.transaction;
    call.function = Function::Rollback;
    call.invoked = std::min(last.returned, end - 1);
    call.returned = end;
    return call;
}

class MainLine {
  public:
    explicit MainLine(const History& history) : forks_(history), result_(history) {
        result_.calls.clear();
        for (const Call& call : history.calls) add(call);
        roll_back_open(&result_.calls,
                       [this](const Call& last) { return forks_.end_of(last.timeline); });
        result_.takeovers.clear();
    }

    History take() { return std::move(result_); }

  private:
    void add(const Call& call) {
        const Micros end = forks_.end_of(call.timeline);
        if (!belongs(call, end)) return;
        result_.calls.push_back(call);
        if (end != kNever) result_.calls.back().returned = std::min(call.returned, end);
    }

    const Forks forks_;
    History result_;
};

// A transaction that was to leave an effect, and the answer that its client got.
struct Attempt {
    std::vector<std::string> effects;
    const Call* commit = nullptr;
};

std::map<std::int64_t, Attempt> attempts(const History& history) {
    const Transactions transactions(history);
    std::map<std::int64_t, Attempt> all;
    for (const Call& call : history.calls) {
        const bool has_effect = !call.asked.effect.empty() && call.result != Result::Error &&
                                (call.result == Result::Info ? call.alone : writes(call)) &&
                                transactions.survives(call);
        if (has_effect) all[call.transaction].effects.push_back(call.asked.effect);
        if (!commits(call) || call.result == Result::Error) continue;
        const auto attempt = all.find(call.transaction);
        if (attempt != all.end()) attempt->second.commit = &call;
    }
    return all;
}

std::set<std::string> effects_of(const History& history) {
    std::set<std::string> ids;
    for (const Effect& effect : history.effects) ids.insert(effect.id);
    return ids;
}

bool any_missing(const Attempt& attempt, const std::set<std::string>& ids) {
    return std::any_of(attempt.effects.begin(), attempt.effects.end(),
                       [&](const std::string& effect) { return ids.count(effect) == 0; });
}

void check_past_call(const Call& call, const std::set<std::string>& ids, bool may_forget,
                     std::vector<Violation>* found) {
    if (!may_forget && call.alone && call.result == Result::Ok && writes(call))
        found->push_back({4, "committed by a primary of the past: " + describe(call)});
    if (ids.count(call.asked.effect) > 0)
        found->push_back({14, "an effect that a primary of the past had: " + describe(call)});
}

}  // namespace

void roll_back_open(std::vector<Call>* calls, const std::function<Micros(const Call&)>& end_of) {
    std::map<std::int64_t, const Call*> open;  // their last calls
    for (const Call& call : *calls) {
        if (call.alone || call.function >= Function::Commit)
            open.erase(call.transaction);
        else
            open[call.transaction] = &call;
    }
    std::vector<Call> rollbacks;
    for (const auto& [transaction, last] : open) {
        const Micros end = end_of(*last);
        if (end != kNever) rollbacks.push_back(rollback_of(*last, end));
    }
    calls->insert(calls->end(), rollbacks.begin(), rollbacks.end());
}

History main_line(const History& history) {
    return MainLine(history).take();
}

std::vector<Micros> takeovers_of(const History& history) {
    return Forks(history).takeovers();
}

std::vector<Violation> check_past(const History& history) {
    std::vector<Violation> found;
    const Forks forks(history);
    const std::set<std::string> ids = effects_of(history);
    const bool may_forget = !history.forgetful_failovers.empty();
    for (const Call& call : history.calls)
        if (forks.is_past(call)) check_past_call(call, ids, may_forget, &found);
    if (!may_forget)
        for (const auto& [transaction, attempt] : attempts(history))
            if (attempt.commit != nullptr && attempt.commit->result == Result::Ok &&
                any_missing(attempt, ids))
                found.push_back({4, "acknowledged, and lost: " + describe(*attempt.commit)});
    // The fate of commits on a branch is unknown, and a repeat may be told of them there.
    History all = history;
    all.effects_known = false;
    for (const auto rule : {check_answers, check_tokens, check_errors})
        for (const Violation& violation : rule(all)) found.push_back(violation);
    return found;
}

Losses count_losses(const History& history) {
    Losses losses;
    const Forks forks(history);
    const std::set<std::string> ids = effects_of(history);
    for (const auto& [transaction, attempt] : attempts(history)) {
        if (attempt.commit == nullptr) continue;
        const Call& commit = *attempt.commit;
        const bool lost = any_missing(attempt, ids);
        if (commit.result == Result::Ok) {
            ++losses.acknowledged;
            losses.acknowledged_and_lost += lost;
            losses.of_the_past += lost && forks.is_past(commit);
        } else if (commit.sqlstate == kNotReplicated) {
            ++losses.warned;
            losses.warned_and_lost += lost;
        } else {
            ++losses.unanswered;
            losses.unanswered_and_lost += lost;
        }
    }
    return losses;
}

std::vector<Micros> acknowledgements(const History& history) {
    const Forks forks(history);
    std::vector<Micros> moments;
    for (const auto& [transaction, attempt] : attempts(history)) {
        const Call* const commit = attempt.commit;
        if (commit != nullptr && commit->result == Result::Ok && !forks.is_past(*commit))
            moments.push_back(commit->returned);
    }
    std::sort(moments.begin(), moments.end());
    return moments;
}

}  // namespace idem::chaos
