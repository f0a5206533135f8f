#include "check/sight.hpp"

#include <algorithm>

#include "check/timeline.hpp"

namespace idem::chaos {
namespace {

// Keeps the key for the rest of its transaction. An erased record does so to the end of its
// retention at most.
bool keeps(const Call& call, bool outlasts) {
    if (call.result != Result::Ok) return false;
    switch (call.function) {
        case Function::Begin:
        case Function::Execute:
            return call.answer.outcome == "execute";
        case Function::Extend:
        case Function::Checkpoint:
            return true;
        case Function::Once:
        case Function::Complete:
        case Function::Fail:
        case Function::Unknown:
        case Function::Release:
        case Function::Forget:
            return call.answer.yes;
        case Function::Resolve:
            return true;
        case Function::Erase:
            return outlasts && call.answer.outcome == "done";
        default:
            return false;
    }
}

// Ends a claim without its holder, who may continue until it learns of that.
bool overrules(const Call& call) {
    if (call.result == Result::Error) return false;
    const bool ends = call.function == Function::Complete || call.function == Function::Fail ||
                      call.function == Function::Unknown || call.function == Function::Release;
    return call.function == Function::Resolve || (ends && call.asked.token != 0);
}

class Sight {
  public:
    explicit Sight(const History& history)
        : history_(history), transactions_(history), releases_(history, transactions_) {
        for (const Call& call : history.calls) {
            from_ = std::min(from_, call.invoked);
            to_ = std::max(to_, call.invoked);
        }
        for (const Call& call : history.calls) note(call);
        for (const Part& part : history.parts) parts_[part.key].push_back(&part);
    }

    std::vector<Violation> run() {
        for (const Look& look : history_.looks) judge(look);
        judge_generations();
        return found_;
    }

  private:
    using Place = std::pair<std::int64_t, Key>;  // a key in a transaction

    void note(const Call& call) {
        if (call.function == Function::Drop) drops_.push_back(&call);
        if (overrules(call)) overruled_[call.key].push_back(&call);
        if (call.function == Function::Work && call.alone) alone_[call.asked.part] = &call;
        if (!transactions_.survives(call)) return;
        const Place place{call.transaction, call.key};
        if (releases_.frees(call)) locked_.erase(place);
        if (!keeps(call, outlasts(call.key.scope)) || releases_.frees(call)) return;
        auto [first, fresh] = locked_.emplace(place, &call);
        if (!fresh && call.returned < first->second->returned) first->second = &call;
        if (call.function == Function::Begin) grants_[{call.answer.token, call.key}] = &call;
        if (call.function == Function::Execute || call.function == Function::Once)
            calls_[place] = &call;
    }

    // Whether no record of the scope is forgotten by its age during the run.
    bool outlasts(const std::string& scope) const {
        const auto rules = history_.scopes.find(scope);
        return rules != history_.scopes.end() && rules->second.retention > to_ - from_;
    }

    // The call that granted the key for this look; null if its answer was lost.
    const Call* grant_of(const Look& look) const {
        if (look.token != 0) {
            const auto grant = grants_.find({look.token, look.key});
            if (grant != grants_.end()) return grant->second;
        }
        const auto call = calls_.find({look.transaction, look.key});
        return call == calls_.end() ? nullptr : call->second;
    }

    void judge(const Look& look) {
        if (!look.point_seen)
            add(23, look, "goes on from point " + look.point + ", of which it sees nothing");
        const Call* const grant = grant_of(look);
        const auto parts = parts_.find(look.key);
        if (grant == nullptr || parts == parts_.end()) return;
        for (const Part* part : parts->second)
            if (part->transaction != look.transaction && !is_seen(*part, look) &&
                is_before(*part, *grant))
                add(23, look,
                    "does not see part " + part->id + " of transaction " +
                        std::to_string(part->transaction) + ", granted by " + describe(*grant));
    }

    static bool is_seen(const Part& part, const Look& look) {
        const auto& latest = look.latest;
        if (std::find(latest.begin(), latest.end(), part.number) != latest.end()) return true;
        return latest.size() == kLookedAt && part.number < latest.back();
    }

    // Whether the part was committed before the key was granted. The granting call had the lock
    // before it returned or, if the call is a transaction of its own, only during the call. It has
    // waited for any transaction that had the lock before and committed.
    bool is_before(const Part& part, const Call& grant) const {
        const Micros by = grant.alone ? grant.invoked : grant.returned;
        if (part.kind == PartKind::Alone) return is_in_time(part, grant, by);
        const auto locked = locked_.find({part.transaction, part.key});
        if (locked == locked_.end() || locked->second->transaction == grant.transaction)
            return false;
        const Call& lock = *locked->second;
        return lock.returned < by && !dropped_between(lock.invoked, grant.returned);
    }

    // Committed before the lease of its claim could expire, and before another session ended the
    // claim: a decision about a live claim promises nothing to its holder.
    bool is_in_time(const Part& part, const Call& grant, Micros by) const {
        const auto found = grants_.find({part.token, part.key});
        const auto written = alone_.find(part.id);
        if (found == grants_.end() || written == alone_.end()) return false;
        const Call& claim = *found->second;
        const Call& work = *written->second;
        const Micros lease =
            claim.asked.lease > 0 ? claim.asked.lease : history_.scopes.at(part.key.scope).lease;
        return work.result == Result::Ok && work.returned < claim.invoked + lease &&
               claim.transaction != grant.transaction && claim.returned < by &&
               work.returned < by && !dropped_between(claim.invoked, grant.returned) &&
               !overruled_between(part.key, claim.invoked, work.returned);
    }

    // Dropped records protect nothing.
    bool dropped_between(Micros from, Micros to) const { return any_between(drops_, from, to); }

    bool overruled_between(const Key& key, Micros from, Micros to) const {
        const auto found = overruled_.find(key);
        return found != overruled_.end() && any_between(found->second, from, to);
    }

    static bool any_between(const std::vector<const Call*>& calls, Micros from, Micros to) {
        return std::any_of(calls.begin(), calls.end(), [&](const Call* call) {
            return call->returned >= from && call->invoked <= to;
        });
    }

    void judge_generations() {
        for (const auto& [key, parts] : parts_) {
            std::map<std::string, const Part*> first;
            for (const Part* part : parts) {
                if (part->kind != PartKind::Once) continue;
                const auto [earlier, fresh] = first.emplace(part->generation, part);
                if (fresh) continue;
                found_.push_back({1, "key " + key.scope + "/" + key.principal + "/" + key.key +
                                         " has had its part twice in generation " +
                                         part->generation + ": " + earlier->second->id + " and " +
                                         part->id});
            }
        }
    }

    void add(int invariant, const Look& look, const std::string& what) {
        const std::string who = "transaction " + std::to_string(look.transaction);
        found_.push_back({invariant, who + " " + what});
    }

    const History& history_;
    const Transactions transactions_;
    const Releases releases_;
    Micros from_ = kNever;  // the first and the last call
    Micros to_ = 0;
    std::map<Key, std::vector<const Part*>> parts_;
    std::map<Place, const Call*> locked_;  // the first of a transaction's calls that keep the key
    std::map<std::pair<std::int64_t, Key>, const Call*> grants_;  // by token
    std::map<Place, const Call*> calls_;                          // that grant and end at once
    std::map<std::string, const Call*> alone_;
    std::map<Key, std::vector<const Call*>> overruled_;
    std::vector<const Call*> drops_;
    std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> check_sight(const History& history) {
    return Sight(history).run();
}

}  // namespace idem::chaos
