// Hand-written histories: short ones that a reader can judge at a glance.
#pragma once

#include <gtest/gtest.h>

#include "check/checker.hpp"

namespace idem::chaos {

// Calls follow each other at whole seconds, unless told otherwise.
class Story {
  public:
    Story() {
        history_.scopes["s"] = Rules{3600 * kSecond, 3600 * kSecond, 10 * kSecond, 0, false};
    }

    Rules& rules() { return history_.scopes["s"]; }
    History& history() { return history_; }

    // A new transaction; the calls of this session that follow belong to it.
    Story& transaction() {
        ++transaction_;
        alone_ = false;
        return *this;
    }
    Story& back_to(std::int64_t transaction) {
        transaction_ = transaction;
        alone_ = false;
        return *this;
    }
    // Every following call is a separate transaction.
    Story& alone() {
        alone_ = true;
        return *this;
    }
    Story& key(const std::string& key) {
        key_ = key;
        return *this;
    }

    // The timeline of the server that is asked from now on.
    Story& timeline(int timeline) {
        timeline_ = timeline;
        if (timeline_ > 0) history_.takeovers.emplace(timeline, time_ + kMillisecond);
        return *this;
    }

    Call& call(Function function) {
        Call call;
        if (alone_) ++transaction_;
        call.transaction = transaction_;
        call.alone = alone_;
        call.timeline = timeline_;
        call.function = function;
        call.key = {"s", "", key_};
        call.invoked = (time_ += kSecond);
        call.returned = call.invoked + kMillisecond;
        history_.calls.push_back(call);
        return history_.calls.back();
    }
    Call& begin(const std::string& outcome, std::int64_t token = 0, int attempt = 1) {
        Call& made = call(Function::Begin);
        made.answer.outcome = outcome;
        made.answer.token = token;
        made.answer.attempt = attempt;
        made.answer.found = true;
        return made;
    }
    Call& replay(const std::string& body, int attempt = 1) {
        Call& made = begin("replay", 0, attempt);
        made.answer.body = body;
        return made;
    }
    // Without the effect.
    Call& complete(const std::string& body, std::int64_t token = 0, bool yes = true) {
        Call& made = call(Function::Complete);
        made.asked.token = token;
        made.asked.body = body;
        made.answer.yes = yes;
        return made;
    }
    // With an effect of the same name as the answer, as in the workload.
    Call& complete_with_effect(const std::string& body, std::int64_t token = 0) {
        history_.effects.push_back({body, transaction_ + (alone_ ? 1 : 0), {"s", "", key_}});
        Call& made = complete(body, token);
        made.asked.effect = body;
        return made;
    }
    // A part of the work, by the current transaction; the next one has the next number.
    Call& part(const std::string& id, PartKind kind, std::int64_t token,
               const std::string& generation = "g") {
        Call& made = call(Function::Work);
        made.asked.part = id;
        const auto number = static_cast<std::int64_t>(history_.parts.size()) + 1;
        history_.parts.push_back(
            {number, id, transaction_, {"s", "", key_}, generation, token, kind});
        return made;
    }
    Look& look(std::int64_t token, const std::vector<std::int64_t>& latest) {
        history_.looks.push_back({transaction_, {"s", "", key_}, token, latest, "", true});
        return history_.looks.back();
    }
    Call& commit(Result result = Result::Ok) {
        Call& made = call(Function::Commit);
        made.result = result;
        return made;
    }
    Call& rollback() { return call(Function::Rollback); }
    Call& error(Function function, const std::string& sqlstate, std::int64_t token = 0) {
        Call& made = call(function);
        made.result = Result::Error;
        made.sqlstate = sqlstate;
        made.asked.token = token;
        return made;
    }
    Story& later(Micros duration) {
        time_ += duration;
        return *this;
    }

    // The violated invariants.
    std::set<int> violated() const {
        std::set<int> invariants;
        for (const Violation& violation : judge(history_).violations)
            invariants.insert(violation.invariant);
        return invariants;
    }

  private:
    History history_;
    std::string key_ = "k";
    std::int64_t transaction_ = 0;
    bool alone_ = false;
    int timeline_ = 0;
    Micros time_ = 1000 * kSecond;
};

inline const std::set<int> kNothing{};

}  // namespace idem::chaos
