#include "check/timeline.hpp"

#include <algorithm>
#include <memory>

namespace idem::chaos {
namespace {

using Fate = Transactions::Fate;

bool is_protocol(const Call& call) {
    return call.function < Function::Drop;
}

bool is_end(const Call& call) {
    return call.alone || call.function == Function::Commit || call.function == Function::Rollback ||
           call.function == Function::CommitPrepared || call.function == Function::RollbackPrepared;
}

Fate fate_of(const Call& end) {
    if (end.function == Function::Rollback || end.function == Function::RollbackPrepared)
        return Fate::RolledBack;
    if (end.result == Result::Ok) return Fate::Committed;
    return end.result == Result::Error ? Fate::RolledBack : Fate::Unknown;
}

// An error that says nothing about the key: the call has done nothing, and can have come at any
// time.
bool tells_nothing(const Call& call) {
    static const std::set<std::string> kTelling = {"54000", "ID404", "ID409", "22004",
                                                   "55006", "55000", "55P03"};
    return call.result == Result::Error && kTelling.count(call.sqlstate) == 0;
}

// In a transaction that continues or is undone, an unanswered call leaves no trace but its lock.
bool leaves_nothing(const Call& call) {
    return is_protocol(call) &&
           (tells_nothing(call) || (call.result == Result::Info && !call.alone));
}

class Builder {
  public:
    explicit Builder(const History& history)
        : transactions_(history), early_rows_(history.early_rows) {
        for (const Call& call : history.calls)
            if (call.result != Result::Info)
                last_answers_[{call.session, call.connection}] = call.invoked;
        for (const Call& call : history.calls) add(call);
        for (auto& [key, timeline] : keys_) sort(timeline);
    }

    std::vector<Timeline> result() {
        std::vector<Timeline> all;
        for (auto& [key, timeline] : keys_) all.push_back(std::move(timeline));
        return all;
    }

  private:
    void add(const Call& call) {
        if (call.function == Function::Drop) {
            drops_.push_back(&call);
        } else if (call.function == Function::ForgetAll) {
            forgettings_.push_back(&call);
        } else if (is_protocol(call)) {
            add_protocol(call);
        } else {
            add_control(call);
        }
    }

    void add_protocol(const Call& call) {
        if (leaves_nothing(call)) return;
        const Fate fate = call.alone ? transactions_.fate(call.transaction) : Fate::Committed;
        if (fate == Fate::RolledBack && call.result == Result::Info) return;
        touched_[call.transaction].insert(call.key);
        Step step = step_of(call);
        step.may_be_skipped = call.result == Result::Info && fate == Fate::Unknown;
        timeline(call.key).steps.push_back(step);
    }

    // Savepoints and ends concern every key that the transaction has touched.
    void add_control(const Call& call) {
        if (call.function == Function::Savepoint) depth_[call.transaction] = call.asked.savepoint;
        if (call.function == Function::RollbackTo) depth_[call.transaction] = call.asked.savepoint;
        if (call.function <= Function::Effect || call.function == Function::Savepoint) return;
        // The transaction has failed and can only be rolled back.
        if (call.function == Function::RollbackTo && call.result == Result::Error) return;
        for (const Key& key : touched_[call.transaction])
            timeline(key).steps.push_back(end_of(call));
    }

    Step end_of(const Call& call) {
        Step step = step_of(call);
        if (is_end(call)) step.invoked = transactions_.earliest_end(call.transaction);
        if (call.function != Function::Commit && call.function != Function::CommitPrepared)
            return step;
        const Fate fate = transactions_.fate(call.transaction);
        if (fate == Fate::RolledBack) step.call = as_rollback(call);
        step.may_be_undone = fate == Fate::Unknown;
        return step;
    }

    const Call* as_rollback(const Call& call) {
        rollbacks_.push_back(std::make_unique<Call>(call));
        rollbacks_.back()->function = Function::Rollback;
        rollbacks_.back()->result = Result::Ok;
        return rollbacks_.back().get();
    }

    Step step_of(const Call& call) {
        Step step;
        step.call = &call;
        step.depth = depth_[call.transaction];
        step.invoked = call.invoked;
        step.returned = call.returned;
        step.early_rows = early_rows_;
        if (call.asked.hold) step.gone_from = last_answers_[{call.session, call.connection}];
        return step;
    }

    // It scans twice, to include the claims that were open at first, and commits in batches: a call
    // that failed or was lost may have reached this key before.
    void add_forgetting(const Call& call, Timeline& timeline) {
        Step step = step_of(call);
        step.may_be_skipped = call.result != Result::Ok;
        step.scans_again = true;
        timeline.steps.push_back(step);
        step.scans_again = false;
        timeline.steps.push_back(step);
    }

    Timeline& timeline(const Key& key) {
        Timeline& timeline = keys_[key];
        timeline.key = key;
        return timeline;
    }

    void sort(Timeline& timeline) {
        for (const Call* drop : drops_) timeline.steps.push_back(step_of(*drop));
        for (const Call* forgetting : forgettings_)
            if (forgetting->key.principal == timeline.key.principal)
                add_forgetting(*forgetting, timeline);
        std::stable_sort(timeline.steps.begin(), timeline.steps.end(),
                         [](const Step& a, const Step& b) { return a.invoked < b.invoked; });
        std::map<std::int64_t, int> last;
        for (std::size_t i = 0; i < timeline.steps.size(); ++i) {
            const std::int64_t transaction = timeline.steps[i].call->transaction;
            const auto found = last.find(transaction);
            timeline.predecessor.push_back(found == last.end() ? -1 : found->second);
            last[transaction] = static_cast<int>(i);
        }
    }

    const Transactions transactions_;
    const bool early_rows_;
    // Of a connection: its last answered call, when it had not ended yet.
    std::map<std::pair<int, int>, Micros> last_answers_;
    std::map<Key, Timeline> keys_;
    std::map<std::int64_t, std::set<Key>> touched_;
    std::map<std::int64_t, int> depth_;
    std::vector<const Call*> drops_;
    std::vector<const Call*> forgettings_;
    // Commits that, by their effects, did not happen. They live as long as the program, because
    // steps point to them.
    static std::vector<std::unique_ptr<Call>> rollbacks_;
};

std::vector<std::unique_ptr<Call>> Builder::rollbacks_;

}  // namespace

Transactions::Transactions(const History& history) {
    std::map<std::int64_t, std::vector<const Call*>> calls;
    for (const Call& call : history.calls) {
        auto& earlier = calls[call.transaction];
        if (call.function == Function::RollbackTo)
            for (auto it = earlier.rbegin(); it != earlier.rend(); ++it) {
                if ((*it)->function == Function::Savepoint &&
                    (*it)->asked.savepoint == call.asked.savepoint)
                    break;
                undone_.insert(*it);
            }
        earlier.push_back(&call);
        if (!is_end(call)) continue;
        fates_[call.transaction] = fate_of(call);
        const bool lost = call.result == Result::Info && earlier.size() > 1;
        earliest_ends_[call.transaction] =
            lost ? earlier[earlier.size() - 2]->invoked : call.invoked;
    }
    if (!history.effects_known) return;
    // The effect commits with its transaction, so it shows an end that the client was not told.
    std::set<std::int64_t> effective;
    for (const Effect& effect : history.effects) effective.insert(effect.transaction);
    for (const Call& call : history.calls) {
        if (call.asked.effect.empty() || !survives(call) || fate(call.transaction) != Fate::Unknown)
            continue;
        const bool written = effective.count(call.transaction) > 0;
        const bool certain = written || (!call.alone && call.result == Result::Ok);
        if (certain) fates_[call.transaction] = written ? Fate::Committed : Fate::RolledBack;
    }
}

Fate Transactions::fate(std::int64_t transaction) const {
    const auto found = fates_.find(transaction);
    return found == fates_.end() ? Fate::RolledBack : found->second;
}

Micros Transactions::earliest_end(std::int64_t transaction) const {
    const auto found = earliest_ends_.find(transaction);
    return found == earliest_ends_.end() ? kNever : found->second;
}

bool Transactions::survives(const Call& call) const {
    return undone_.count(&call) == 0;
}

Releases::Releases(const History& history, const Transactions& transactions) {
    std::set<std::int64_t> written;
    for (const Call& call : history.calls) {
        const bool writes = call.function == Function::Work || call.function == Function::Effect;
        if (writes && !call.alone && call.result == Result::Ok && transactions.survives(call))
            written.insert(call.transaction);
        const bool of_its_own = call.function == Function::Release && call.asked.token == 0;
        if (of_its_own && written.count(call.transaction) == 0) freeing_.insert(&call);
    }
}

std::vector<Timeline> timelines(const History& history) {
    return Builder(history).result();
}

}  // namespace idem::chaos
