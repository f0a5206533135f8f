#include "check/rules.hpp"

#include <algorithm>
#include <sstream>

#include "check/timeline.hpp"

namespace idem::chaos {
namespace {

using Fate = Transactions::Fate;

constexpr Micros kPatience = 90 * kSecond;  // a call may wait for a restart and a long lock

// The call stores a result in the record and so closes a generation of its key.
bool records_result(const Call& call) {
    if (call.result == Result::Error || call.asked.effect.empty()) return false;
    if (call.result == Result::Info) return true;
    return call.answer.yes || call.answer.outcome == "execute";
}

bool is_final_result(const Call& call) {
    switch (call.function) {
        case Function::Complete:
        case Function::Once:
        case Function::Execute:
            return true;
        case Function::Fail:
            return !call.asked.retryable;
        case Function::Resolve:
            return !runs_again(call.asked.action);
        default:
            return false;
    }
}

}  // namespace

namespace {

class Effects {
  public:
    explicit Effects(const History& history) : history_(history), transactions_(history) {
        for (const Effect& effect : history.effects) ++rows_[effect.id];
        for (const Call& call : history.calls)
            if (records_result(call)) results_[call.asked.effect] = &call;
    }

    std::vector<Violation> run() {
        for (const auto& [id, count] : rows_) judge_row(id, count);
        for (const auto& [id, call] : results_) judge_result(id, *call);
        judge_replays();
        return found_;
    }

  private:
    void judge_row(const std::string& id, int count) {
        if (count > 1) add(1, "effect " + id + " has happened " + std::to_string(count) + " times");
        const auto result = results_.find(id);
        if (result == results_.end())
            add(14, "effect " + id + " has no result that was recorded with it");
        else if (!transactions_.survives(*result->second) ||
                 transactions_.fate(result->second->transaction) == Fate::RolledBack)
            add(11, "an effect of what was rolled back: " + describe(*result->second));
    }

    void judge_result(const std::string& id, const Call& call) {
        const bool certain = transactions_.survives(call) && call.result == Result::Ok &&
                             transactions_.fate(call.transaction) == Fate::Committed;
        if (certain && rows_.count(id) == 0)
            add(14, "a result was recorded without its effect: " + describe(call));
    }

    // Bodies contain the name of their effect, so a replayed answer leads to it.
    void judge_replays() {
        std::map<std::string, std::string> effect_of;
        for (const auto& [id, call] : results_)
            if (!call->asked.body.empty()) effect_of[call->asked.body] = id;
        for (const Call& call : history_.calls) {
            const auto effect = effect_of.find(call.answer.body);
            // Effects of a lost primary can't be seen.
            const bool lost = before_last_forgetting(history_, call);
            if (lost || call.answer.outcome != "replay" || effect == effect_of.end()) continue;
            const bool of_itself = results_[effect->second]->transaction == call.transaction;
            if (!of_itself && rows_.count(effect->second) == 0)
                add(14, "an answer is replayed that has no effect: " + describe(call));
        }
    }

    void add(int invariant, const std::string& what) { found_.push_back({invariant, what}); }

    const History& history_;
    const Transactions transactions_;
    std::map<std::string, int> rows_;
    std::map<std::string, const Call*> results_;
    std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> check_effects(const History& history) {
    if (!history.effects_known) return {};
    return Effects(history).run();
}

namespace {

// The transaction that has given each answer to each key, and since when the answer may have been
// visible.
class GivenAnswers {
  public:
    explicit GivenAnswers(const History& history) : transactions_(history) {
        for (const Call& call : history.calls)
            if (call.alone || call.function == Function::Commit ||
                call.function == Function::CommitPrepared)
                visible_.emplace(call.transaction, call.invoked);
        for (const Call& call : history.calls)
            if (call.result != Result::Error && is_final_result(call))
                given_.insert({{call.asked.body, call.asked.status_code}, &call});
    }

    // The fault of a replay, if any.
    std::vector<Violation> judge(const Call& replay) const {
        const auto [first, last] =
            given_.equal_range({replay.answer.body, replay.answer.status_code});
        if (first == last) return {{2, "an answer that nobody has given: " + describe(replay)}};
        const auto of_key = [&](const auto& entry) { return entry.second->key == replay.key; };
        if (std::none_of(first, last, of_key))
            return {{10, "the answer of another key: " + describe(replay)}};
        const auto fits = [&](const auto& entry) {
            return of_key(entry) && visible_to(replay, *entry.second);
        };
        if (std::none_of(first, last, fits))
            return {{3, "an answer that was not committed: " + describe(replay)}};
        return {};
    }

  private:
    // Within its own transaction an answer is seen before it is committed.
    bool visible_to(const Call& replay, const Call& giver) const {
        if (giver.transaction == replay.transaction) return true;
        if (transactions_.fate(giver.transaction) == Fate::RolledBack) return false;
        const auto since = visible_.find(giver.transaction);
        return transactions_.survives(giver) && since != visible_.end() &&
               since->second <= replay.returned;
    }

    const Transactions transactions_;
    std::map<std::int64_t, Micros> visible_;
    std::multimap<std::pair<std::string, int>, const Call*> given_;
};

// The search decides whether the sequence is possible.
bool is_failed_by_sweeper(const History& history, const Call& replay) {
    const auto rules = history.scopes.find(replay.key.scope);
    return replay.answer.error == kGivenUp && rules != history.scopes.end() &&
           rules->second.abandon_after > 0 && rules->second.on_abandon == OnAbandon::Fail;
}

}  // namespace

std::vector<Violation> check_answers(const History& history) {
    std::vector<Violation> found;
    const GivenAnswers given(history);
    for (const Call& call : history.calls) {
        if (call.result != Result::Ok || call.answer.outcome != "replay") continue;
        if (is_failed_by_sweeper(history, call)) continue;
        for (const Violation& violation : given.judge(call)) found.push_back(violation);
    }
    return found;
}

std::vector<Violation> check_tokens(const History& history) {
    constexpr Micros kResolution = 2 * kMillisecond;  // of a token's time
    std::vector<Violation> found;
    std::map<Key, std::vector<const Call*>> grants;
    for (const Call& call : history.calls) {
        // Over HTTP a token is not told.
        const bool granted = call.function == Function::Begin ||
                             (call.function == Function::Execute && call.answer.token != 0);
        if (granted && call.result == Result::Ok && call.answer.outcome == "execute")
            grants[call.key].push_back(&call);
    }
    for (auto& [key, calls] : grants) {
        std::sort(calls.begin(), calls.end(),
                  [](const Call* a, const Call* b) { return a->returned < b->returned; });
        std::set<std::int64_t> issued;
        std::int64_t largest = 0;
        std::size_t behind = 0;  // grants that had returned before this one was asked for
        std::vector<const Call*> by_start = calls;
        std::sort(by_start.begin(), by_start.end(),
                  [](const Call* a, const Call* b) { return a->invoked < b->invoked; });
        for (const Call* call : by_start) {
            for (; behind < calls.size() && calls[behind]->returned + kResolution < call->invoked;
                 ++behind)
                largest = std::max(largest, calls[behind]->answer.token);
            if (!issued.insert(call->answer.token).second)
                found.push_back({6, "a token was issued twice: " + describe(*call)});
            else if (call->answer.token <= largest)
                found.push_back({6, "a token is not larger than " + std::to_string(largest) + ": " +
                                        describe(*call)});
        }
    }
    return found;
}

// Uncommitted claims exclude each other from the grant to the transaction's end, or until they are
// released without any work. (The search checks leases.)
std::vector<Violation> check_grants(const History& history) {
    struct Held {
        Micros from;
        Micros to;
        const Call* call;
    };
    const Transactions transactions(history);
    std::map<std::int64_t, Micros> undone;
    std::set<std::pair<std::int64_t, Key>> given_back;
    const Releases releases(history, transactions);
    for (const Call& call : history.calls) {
        // A release before the end needs the closer look of the search.
        if (releases.frees(call)) given_back.insert({call.transaction, call.key});
        if (call.function == Function::RollbackTo) undone.emplace(call.transaction, call.invoked);
    }
    std::map<Key, std::vector<Held>> held;
    for (const Call& call : history.calls) {
        const bool granted = call.function == Function::Begin && call.result == Result::Ok &&
                             call.answer.outcome == "execute" && !call.alone;
        if (!granted || given_back.count({call.transaction, call.key}) > 0) continue;
        const auto undo = undone.find(call.transaction);
        const Micros end = std::min(transactions.earliest_end(call.transaction),
                                    undo == undone.end() ? kNever : undo->second);
        if (end != kNever && end > call.returned)
            held[call.key].push_back({call.returned, end, &call});
    }
    std::vector<Violation> found;
    for (auto& [key, all] : held) {
        std::sort(all.begin(), all.end(),
                  [](const Held& a, const Held& b) { return a.from < b.from; });
        for (std::size_t i = 1; i < all.size(); ++i)
            if (all[i].from < all[i - 1].to &&
                all[i].call->transaction != all[i - 1].call->transaction)
                found.push_back({5, "two transactions held one key: " + describe(*all[i - 1].call) +
                                        " and " + describe(*all[i].call)});
    }
    return found;
}

namespace {

// Citus's own error while shards are moved: this node, or the one that was sent the call, does not
// know the shard any more, or not yet.
bool met_a_move(const History& history, const Call& call) {
    constexpr Micros kUntilAllKnow = 10 * kSecond;
    if (call.sqlstate != "XX000" ||
        call.message.find("could not find valid entry for shard ") == std::string::npos)
        return false;
    return std::any_of(history.moves.begin(), history.moves.end(), [&](const ShardMove& move) {
        return move.from <= call.returned && call.invoked - kUntilAllKnow <= move.to;
    });
}

}  // namespace

std::vector<Violation> check_errors(const History& history) {
    // Our own errors, those that a caller has asked for, and those that faults are expected to
    // cause.
    static const std::set<std::string> kDeclared = {
        "ID404", "ID409", "22004", "54000", "55P03", "55000", "55006",  // docs/errors.md
        "40001", "40P01", "57014",                                      // retry
        "53100", "53200", "53300", "57P01", "57P02", "57P03", "58000",  // the server is in trouble
        "08000", "08001", "08003", "08006", "08P01",                    // the connection is
        "25006",                                                        // a standby
        "25P02"};                                                       // a lost transaction
    // An operation that returns idem_response is dropped with the extension: 42P13 to a call in
    // progress.
    static const std::set<std::string> kWithoutExtension = {"42883", "42P01", "42P13", "3F000"};
    static const std::string kUsersTrigger = "CH001";
    const bool drops = std::any_of(history.calls.begin(), history.calls.end(),
                                   [](const Call& c) { return c.function == Function::Drop; });
    // An error that can be detected earlier is not raised at commit.
    static const std::set<std::string> kOnlyEarlier = {"25006", "40P01", "42501",      "55000",
                                                       "55006", "55P03", kUsersTrigger};
    const auto is_declared = [&](const Call& call) {
        if (call.function >= Function::Commit && kOnlyEarlier.count(call.sqlstate) > 0)
            return false;
        if (met_a_move(history, call)) return call.function < Function::Commit;
        const auto rules = history.scopes.find(call.key.scope);
        if (call.sqlstate == "42501") return rules != history.scopes.end() && rules->second.closed;
        if (call.sqlstate == kUsersTrigger) return true;
        if (kWithoutExtension.count(call.sqlstate) > 0) return drops;
        return kDeclared.count(call.sqlstate) > 0;
    };
    std::vector<Violation> found;
    for (const Call& call : history.calls)
        if (call.result == Result::Error && !is_declared(call))
            found.push_back({19, "an error that nobody declared: " + describe(call)});
    return found;
}

// A scope that is reserved for another role answers no caller.
std::vector<Violation> check_closed(const History& history) {
    std::vector<Violation> found;
    for (const Call& call : history.calls) {
        const auto rules = history.scopes.find(call.key.scope);
        if (rules != history.scopes.end() && rules->second.closed && call.result == Result::Ok)
            found.push_back({24, "a closed scope has answered: " + describe(call)});
    }
    return found;
}

namespace {

// postgres_fdw commits the remote half first. Afterwards only these errors are possible: the server
// or the backend ends, a resource is full, or a serialization failure or a cancel comes now.
bool is_foreign_window(const Call& end) {
    if (end.function != Function::Commit) return false;
    if (end.result == Result::Info) return true;
    const std::string state_class = end.sqlstate.substr(0, 2);
    return end.sqlstate == "40001" || state_class == "57" || state_class == "53" ||
           state_class == "58" || state_class == "08";
}

}  // namespace

// The remote half of a transaction commits if and only if its claim does.
std::vector<Violation> check_foreign(const History& history) {
    if (!history.effects_known) return {};
    const Transactions transactions(history);
    std::map<std::int64_t, const Call*> ends;
    std::set<std::string> rows;
    for (const ForeignRow& row : history.foreign) rows.insert(row.id);
    for (const Call& call : history.calls)
        if (call.function == Function::Commit || call.function == Function::Rollback) {
            const auto [end, first] = ends.emplace(call.transaction, &call);
            if (!first && end->second->function == Function::Rollback) end->second = &call;
        }
    std::vector<Violation> found;
    for (const Call& call : history.calls) {
        if (call.function != Function::Foreign || call.result != Result::Ok) continue;
        const Fate fate =
            transactions.survives(call) ? transactions.fate(call.transaction) : Fate::RolledBack;
        const auto end = ends.find(call.transaction);
        const bool in_window = end != ends.end() && is_foreign_window(*end->second);
        const bool there = rows.count(call.asked.part) > 0;
        if (fate == Fate::Committed && !there)
            found.push_back({14, "committed without its foreign row: " + describe(call)});
        if (fate == Fate::RolledBack && there && !in_window)
            found.push_back({14, "the foreign row of what was rolled back: " + describe(call)});
    }
    return found;
}

// "in_progress" needs a lock that some session could hold, and no call waits forever.
std::vector<Violation> check_waits(const History& history) {
    struct Span {
        Micros from;
        Micros to;
        std::int64_t transaction;
    };
    std::map<std::pair<std::int64_t, Key>, Span> spans;
    std::map<std::int64_t, Micros> ends;
    for (const Call& call : history.calls) {
        if (call.alone || call.function >= Function::Commit)
            if (call.function != Function::Prepare)
                ends[call.transaction] = std::max(ends[call.transaction], call.returned);
        if (call.function >= Function::Drop || call.function == Function::Get) continue;
        auto [span, fresh] = spans.emplace(std::pair{call.transaction, call.key},
                                           Span{call.invoked, kNever, call.transaction});
        if (!fresh) span->second.from = std::min(span->second.from, call.invoked);
    }
    std::map<Key, std::vector<Span>> holders;
    std::vector<Span> of_all;  // of sessions that may use any key
    for (const Call& call : history.calls) {
        if (call.function != Function::Cleanup && call.function != Function::ForgetAll) continue;
        const auto end = ends.find(call.transaction);
        const Micros to = end == ends.end() ? kNever : end->second;
        of_all.push_back({call.invoked, to, call.transaction});
    }
    for (auto& [where, span] : spans) {
        const auto end = ends.find(span.transaction);
        if (end != ends.end()) span.to = end->second;
        holders[where.second].push_back(span);
    }
    std::vector<Violation> found;
    Micros began = kNever;
    for (const Call& call : history.calls) began = std::min(began, call.invoked);
    for (const Call& call : history.calls) {
        // The call may meet a sweeper that is removing the earlier record. It waits for the sweeper
        // at least a millisecond where idem_begin writes the row. A sweeper that checks whether to
        // abandon a claim has the key's lock meanwhile.
        const auto rules = history.scopes.find(call.key.scope);
        const bool sweeping =
            (history.early_rows && call.returned - call.invoked >= kMillisecond) ||
            (rules != history.scopes.end() &&
             (rules->second.abandon_after > 0 || call.returned - began >= rules->second.retention));
        const bool bare = call.result == Result::Ok && call.answer.outcome == "in_progress" &&
                          !call.answer.found && !sweeping;
        if (bare) {
            const auto& others = holders[call.key];
            const auto overlaps = [&](const Span& other) {
                return other.transaction != call.transaction && other.from <= call.returned &&
                       other.to >= call.invoked;
            };
            if (std::none_of(others.begin(), others.end(), overlaps) &&
                std::none_of(of_all.begin(), of_all.end(), overlaps))
                found.push_back({17, "nobody else could hold the key: " + describe(call)});
        }
        if (call.returned != kNever && call.returned - call.invoked > kPatience)
            found.push_back({17, "the call took too long: " + describe(call)});
    }
    return found;
}

namespace {

// The secrets that were in the table before a principal was forgotten, and must not be met
// afterwards.
class Forgotten {
  public:
    explicit Forgotten(const History& history) : transactions_(history) {
        for (const Call& call : history.calls)
            if (ends_transaction(call) && call.result == Result::Ok)
                committed_[call.transaction] = call.returned;
        for (const Call& call : history.calls) {
            if (!call.asked.secret.empty() && is_certain(call))
                kept_[call.asked.secret] = {call.key, call.returned,
                                            committed_.at(call.transaction)};
            if (forgets(call) && is_certain(call))
                forgettings_[call.key.principal].push_back(
                    {call.key, call.function == Function::ForgetAll, call.invoked,
                     committed_.at(call.transaction)});
        }
    }

    // The fault of the secrets met, if any.
    std::vector<Violation> judge(const Call& scan) const {
        std::vector<Violation> found;
        std::istringstream secrets(scan.answer.outcome);
        for (std::string secret; secrets >> secret;) {
            const auto kept = kept_.find(secret);
            if (kept != kept_.end() && is_forgotten(kept->second, scan.invoked))
                found.push_back({25, "what was forgotten is there: " + secret + " of key " +
                                         kept->second.key.key + ", met by " + describe(scan)});
        }
        return found;
    }

  private:
    struct Kept {
        Key key;
        Micros written;  // the transaction may have been open for some time after that
        Micros committed;
    };
    struct Forgetting {
        Key key;     // without a name: all of the principal
        bool waits;  // for the transactions that were open, whose writes it then meets
        Micros began;
        Micros done;
    };

    static bool ends_transaction(const Call& call) {
        return call.alone || call.function == Function::Commit ||
               call.function == Function::CommitPrepared;
    }

    static bool forgets(const Call& call) {
        if (call.function == Function::Erase) return call.answer.outcome == "done";
        return call.answer.yes &&
               (call.function == Function::Forget || call.function == Function::ForgetAll);
    }

    bool is_certain(const Call& call) const {
        return call.result == Result::Ok && transactions_.survives(call) &&
               committed_.count(call.transaction) > 0;
    }

    bool is_forgotten(const Kept& kept, Micros at) const {
        const auto all = forgettings_.find(kept.key.principal);
        if (all == forgettings_.end()) return false;
        return std::any_of(all->second.begin(), all->second.end(), [&](const Forgetting& one) {
            const bool concerns = one.key.key.empty() || one.key == kept.key;
            const Micros since = one.waits ? kept.written : kept.committed;
            return concerns && since < one.began && one.done <= at;
        });
    }

    const Transactions transactions_;
    std::map<std::int64_t, Micros> committed_;  // by when
    std::map<std::string, Kept> kept_;
    std::map<std::string, std::vector<Forgetting>> forgettings_;
};

}  // namespace

// Transactions that commit meanwhile and inherit from a record that they saw before.
std::vector<Violation> check_forgotten(const History& history) {
    std::vector<Violation> found;
    const Forgotten forgotten(history);
    for (const Call& call : history.calls) {
        if (call.function != Function::Scan || call.result != Result::Ok) continue;
        for (const Violation& violation : forgotten.judge(call)) found.push_back(violation);
    }
    return found;
}

}  // namespace idem::chaos
