#include "check/model.hpp"

#include <algorithm>

namespace idem::chaos {
namespace {

// ---- time ----

struct Window {
    Micros from;
    Micros to;
};

Micros plus(Micros moment, Micros duration) {
    return moment > kNever - duration ? kNever : moment + duration;
}

Range after_by(const Window& window, Micros duration) {
    return {plus(window.from, duration), plus(window.to, duration)};
}
Range after_by(const Range& moment, const Range& duration) {
    return {plus(moment.lo, duration.lo), plus(moment.hi, duration.hi)};
}

Range later_of(const Range& a, const Range& b) {
    return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
}

// The span from a claim to an end, which is the one that it was given unless the end has moved.
Range span_to(const Range& end, const Range& claimed, const Range& given) {
    const Range as_given = after_by(claimed, given);
    if (as_given.lo == end.lo && as_given.hi == end.hi) return given;
    return {std::max<Micros>(0, end.lo - claimed.hi), end.hi - claimed.lo};
}

bool may_be_over(const Range& end, const Window& now) {
    return now.to >= end.lo;
}
bool may_be_ahead(const Range& end, const Window& now) {
    return now.from < end.hi;
}

// ---- records ----

bool is_final(const Record& record) {
    return record.kind == Kind::Completed || record.kind == Kind::Failed;
}

// Becomes older, and is removed after its retention.
bool has_ended(const Record& record) {
    return is_final(record) || record.kind == Kind::Retryable || record.kind == Kind::Exhausted;
}

// The holder may still end its attempt.
bool takes_result(const Record& record) {
    return record.kind == Kind::InProgress || record.kind == Kind::Unknown ||
           (record.kind == Kind::Exhausted && record.silent);
}

// Also if it has not been removed yet.
bool may_be_gone(const Record& record, const Window& now) {
    return record.kind == Kind::Absent || (has_ended(record) && may_be_over(record.retained, now));
}

bool same_payload(int a, int b) {
    return a == 0 || b == 0 || a == b;
}

bool is_bound(const Record& record, const Window& now) {
    return record.kind == Kind::InProgress || record.kind == Kind::Unknown ||
           (has_ended(record) && may_be_ahead(record.expires, now));
}

// Attempts without an end count as well.
bool attempts_used_up(const Record& record, const Rules& rules) {
    return rules.max_attempts > 0 && record.attempt >= rules.max_attempts;
}

bool retries_used_up(const Record& record, const Rules& rules) {
    return attempts_used_up(record, rules) && !record.by_operator;
}

bool lease_may_be_over(const Record& record, const Window& now) {
    return record.kind == Kind::InProgress &&
           (may_be_over(record.lease_until, now) || now.to >= record.gone_from);
}

// ttl and retention also count from the end, if less than half of the ttl would be left.
void keep_long_enough(const Range& end, Record* record) {
    const Range ttl = record->ttl;
    const bool possible = record->claimed.lo + ttl.lo - end.hi < ttl.lo / 2;
    const bool certain = record->claimed.hi + ttl.hi - end.lo < ttl.hi / 2;
    for (auto [range, duration] :
         {std::pair{&record->expires, ttl}, std::pair{&record->retained, record->retention}}) {
        if (certain) range->lo = plus(end.lo, duration.lo);
        if (possible) range->hi = std::max(range->hi, plus(end.hi, duration.hi));
    }
}

// The policy forbids a takeover, or a sweeper did.
bool is_unknown_when_silent(const Record& record, const Rules& rules) {
    return rules.unknown_on_expiry || record.doubted;
}

// A record with a recovery point may continue, so it is not forgotten by age.
void keep_if_half_way(Record* record) {
    if (record->kind == Kind::Retryable && !record->point.empty())
        record->expires = record->retained = {kNever, kNever};
}

// A dead letter is reported for its whole retention, which counts from when it became one.
void keep_exhausted(const Range& end, Record* record) {
    record->expires = record->retained = after_by(end, record->retention);
}

// After an operator's decision both count from the decision, if they would end earlier.
void keep_as_fresh(const Range& end, const Rules& rules, Record* record) {
    if (record->expires.lo == kNever) record->expires = record->retained = end;
    for (auto [range, duration] :
         {std::pair{&record->expires, rules.ttl}, std::pair{&record->retained, rules.retention}}) {
        range->lo = std::max(range->lo, plus(end.lo, duration));
        range->hi = std::max(range->hi, plus(end.hi, duration));
    }
}

// ---- grants ----

Record new_claim(const Step& step, const Rules& rules, const Window& now) {
    const Call& call = *step.call;
    Record record;
    record.kind = Kind::InProgress;
    record.token = call.answer.token;
    record.attempt = 1;
    record.fingerprint = call.asked.fingerprint;
    record.claimed = {now.from, now.to};
    const Micros ttl = call.asked.ttl > 0 ? call.asked.ttl : rules.ttl;
    const Micros retention = std::max(rules.retention, ttl);
    record.ttl = {ttl, ttl};
    record.retention = {retention, retention};
    record.lease = call.asked.lease > 0 ? call.asked.lease : rules.lease;
    record.expires = after_by(now, ttl);
    record.retained = after_by(now, retention);
    record.lease_until = after_by(now, record.lease);
    record.gone_from = step.gone_from;
    return record;
}

// A later attempt never lets a key be forgotten sooner, and goes on with the ttl of the one before
// unless it has its own.
void go_on(const Record& old, const Call& call, const Rules& rules, Record* record) {
    if (old.retained.lo == kNever) return;
    if (call.asked.ttl == 0) {
        record->ttl = span_to(old.expires, old.claimed, old.ttl);
        record->expires = after_by(record->claimed, record->ttl);
        record->retention = later_of({rules.retention, rules.retention}, record->ttl);
    }
    record->retained = later_of(after_by(record->claimed, record->retention), old.retained);
    record->retention = span_to(record->retained, record->claimed, record->retention);
}

Record next_claim(const Record& old, const Step& step, const Rules& rules, const Window& now) {
    Record record = new_claim(step, rules, now);
    go_on(old, *step.call, rules, &record);
    record.attempt = old.attempt + 1;
    if (record.fingerprint == 0) record.fingerprint = old.fingerprint;
    record.point = old.point;
    record.by_operator = old.by_operator;
    record.given_up = old.given_up;
    return record;
}

bool may_be_taken_over(const Record& record, const Rules& rules, const Window& now) {
    return lease_may_be_over(record, now) && !is_unknown_when_silent(record, rules) &&
           !attempts_used_up(record, rules);
}

bool may_be_retried(const Record& record, const Rules& rules, const Window& now) {
    return record.kind == Kind::Retryable && may_be_over(record.next_attempt, now) &&
           may_be_ahead(record.expires, now) && !retries_used_up(record, rules);
}

// Every claim that could be granted on a record.
std::vector<Record> grants(const Record& record, const Step& step, const Rules& rules,
                           const Window& now) {
    std::vector<Record> result;
    if (may_be_gone(record, now)) result.push_back(new_claim(step, rules, now));
    if (!same_payload(record.fingerprint, step.call->asked.fingerprint)) return result;
    if (may_be_taken_over(record, rules, now) || may_be_retried(record, rules, now))
        result.push_back(next_claim(record, step, rules, now));
    return result;
}

// ---- changes without a call ----

// The last attempt timed out, unless it is recorded as unknown.
bool is_last(const Record& record, const Rules& rules) {
    return attempts_used_up(record, rules) && !is_unknown_when_silent(record, rules);
}

// No other decision is made about it.
bool exhausts(const Record& record, const Rules& rules) {
    return is_last(record, rules) &&
           (rules.abandon_after == 0 || rules.on_abandon == OnAbandon::Release);
}

// The holder may still come.
Record as_exhausted(Record record, const Range& then) {
    record.kind = Kind::Exhausted;
    record.silent = true;
    record.by_operator = false;
    keep_exhausted(then, &record);
    return record;
}

// The old token becomes invalid, so the holder can no longer end the attempt. As with an operator's
// decision, except that no attempt beyond the limit is allowed.
Record as_given_up(Record record, const Range& then, const Rules& rules) {
    if (exhausts(record, rules)) return as_exhausted(std::move(record), then);
    record.doubted = rules.on_abandon == OnAbandon::Unknown;
    if (record.doubted) return record;
    record.given_up = true;
    const bool fails = rules.on_abandon == OnAbandon::Fail;
    record.kind = fails ? Kind::Failed : Kind::Retryable;
    record.token = 0;
    record.by_operator = false;
    record.next_attempt = then;
    if (fails) record.point.clear();
    keep_as_fresh(then, rules, &record);
    keep_if_half_way(&record);
    return record;
}

// The earliest moment at which a sweeper could do so.
Micros given_up_from(const Record& record, const Rules& rules) {
    const Micros due = plus(record.lease_until.lo, rules.abandon_after);
    return record.gone_from == kNever ? due : std::max(due, record.gone_from);
}

bool is_undecided(const Record& record, const Rules& rules) {
    if (record.kind != Kind::InProgress) return false;
    if (rules.abandon_after == 0) return is_last(record, rules);
    return !(rules.on_abandon == OnAbandon::Unknown && record.doubted);
}

// The policy's possible decision by then, if any.
std::optional<Record> given_up_by(const Record& record, Micros by, const Rules& rules) {
    if (!is_undecided(record, rules)) return std::nullopt;
    const Micros from = given_up_from(record, rules);
    if (by < from) return std::nullopt;
    return as_given_up(record, {from, by}, rules);
}

// ---- one call ----

class Move {
  public:
    Move(const State& state, const Step& step, const Rules& rules)
        : state_(state),
          step_(step),
          call_(*step.call),
          rules_(rules),
          now_{step.invoked, step.returned} {}

    std::vector<State> run() {
        if (call_.function == Function::ForgetAll) return forget_all();
        if (call_.result == Result::Error) return looked(error_is_legal());
        switch (call_.function) {
            case Function::Begin:
                return begin();
            case Function::Execute:
                return execute();
            case Function::Once:
                return once();
            case Function::Complete:
            case Function::Fail:
            case Function::Unknown:
            case Function::Release:
                return end_claim();
            case Function::Extend:
            case Function::Checkpoint:
                return prolong();
            case Function::Get:
                return looked(get_is_legal());
            case Function::Forget:
                return forget();
            case Function::Resolve:
                return resolve();
            case Function::Erase:
                return erase();
            case Function::Cleanup:
                return clean();
            case Function::Drop:
                return drop();
            default:
                return end_transaction();
        }
    }

  private:
    bool told() const { return call_.result == Result::Ok; }
    bool owns() const { return state_.owner == call_.transaction; }
    bool may_write() const { return owns() || is_free(); }
    // A released claim has released its lock. An erased record guards its key as long as it would
    // have been kept.
    bool is_free() const {
        return state_.owner == 0 || state_.frames.back().released ||
               (state_.frames.back().erased && may_be_gone(state_.committed, now_));
    }
    const Record& view() const { return owns() ? state_.frames.back().record : state_.committed; }
    const Frame* own() const { return owns() ? &state_.frames.back() : nullptr; }
    bool own_open() const { return owns() && own()->open; }

    std::vector<State> looked(bool legal) const {
        return legal ? std::vector<State>{state_} : std::vector<State>{};
    }

    // The state with a new frame on top; committed at once if the call is a transaction.
    State changed(Frame frame) const {
        State next = state_;
        if (!owns()) next.frames.clear();
        next.owner = call_.transaction;
        frame.depth = step_.depth;
        frame.erased = call_.function == Function::Erase;
        if (!next.frames.empty() && next.frames.back().depth == frame.depth)
            next.frames.back() = frame;
        else
            next.frames.push_back(frame);
        return call_.alone ? committed(next) : next;
    }

    Frame frame() const { return owns() ? own_frame() : Frame{}; }
    Frame own_frame() const { return state_.frames.back(); }

    // The lease counts from the commit, or from the claim if its row was written then.
    State committed(State state) const {
        Frame top = state.frames.back();
        if (top.open) {
            const Range fresh = after_by(now_, top.record.lease);
            if (!step_.early_rows)
                top.record.lease_until.lo = std::max(top.record.lease_until.lo, fresh.lo);
            top.record.lease_until.hi = std::max(top.record.lease_until.hi, fresh.hi);
        }
        state.committed = top.record;
        return undone(state);
    }

    static State undone(State state) {
        state.owner = 0;
        state.frames.clear();
        return state;
    }

    // ---- begin ----

    bool grant_is_legal(const Record& granted) const {
        if (!told()) return true;
        return call_.answer.attempt == granted.attempt && call_.answer.point == granted.point &&
               (view().token == 0 || granted.token == 0 || granted.token > view().token ||
                granted.attempt == 1);
    }

    State granted(const Record& record) const {
        Frame next;
        next.before = view();
        next.record = record;
        next.open = true;
        // If this transaction has changed the key before, it keeps the key when the claim is
        // released.
        next.written = owns() && !own()->released;
        return changed(next);
    }

    std::vector<State> grant_all() const {
        std::vector<State> result;
        if (!may_write() || own_open()) return result;
        for (const Record& record : grants(view(), step_, rules_, now_))
            if (grant_is_legal(record)) result.push_back(granted(record));
        return result;
    }

    std::vector<State> begin() const {
        if (!told() || call_.answer.outcome == "execute") return grant_all();
        return looked(refusal_is_legal());
    }

    bool refusal_is_legal() const {
        const Record& record = view();
        const std::string& outcome = call_.answer.outcome;
        const bool same = same_payload(record.fingerprint, call_.asked.fingerprint);
        if (outcome == "mismatch") return !same && is_bound(record, now_);
        if (outcome == "expired")
            return has_ended(record) && record.kind != Kind::Exhausted &&
                   may_be_over(record.expires, now_) && may_be_ahead(record.retained, now_);
        // Without a record the answer is about a lock; another rule checks whether there was one.
        if (outcome == "in_progress" && !call_.answer.found) return true;
        // A caller with another payload is told nothing else of a record.
        if (!same) return false;
        if (outcome == "in_progress") return in_progress_is_legal(record);
        if (outcome == "replay") return replay_is_legal(record);
        if (outcome == "unknown") return is_unknown();
        if (outcome == "exhausted") return is_exhausted();
        return outcome == "retry_later" && record.kind == Kind::Retryable &&
               may_be_ahead(record.expires, now_) && may_be_ahead(record.next_attempt, now_);
    }

    // The holder has said so, or has timed out.
    bool is_unknown() const {
        return view().kind == Kind::Unknown ||
               (lease_may_be_over(view(), now_) && is_unknown_when_silent(view(), rules_));
    }

    bool is_exhausted() const {
        const Record& record = view();
        if (record.kind == Kind::InProgress)
            return lease_may_be_over(record, now_) && is_last(record, rules_);
        const bool used_up = record.kind == Kind::Exhausted ||
                             (record.kind == Kind::Retryable && retries_used_up(record, rules_));
        return used_up && may_be_ahead(record.expires, now_);
    }

    bool in_progress_is_legal(const Record& record) const {
        return record.kind == Kind::InProgress && call_.answer.attempt == record.attempt &&
               (own_open() || may_be_ahead(record.lease_until, now_));
    }

    bool replay_is_legal(const Record& record) const {
        return is_final(record) && may_be_ahead(record.expires, now_) && shows(record);
    }

    bool shows(const Record& record) const {
        const Answer& answer = call_.answer;
        return answer.attempt == record.attempt && answer.body == record.body &&
               answer.status_code == record.status_code &&
               (answer.error == kGivenUp) == record.given_up;
    }

    // ---- execute and once: a claim and its end in one call ----

    std::vector<State> ended_grants(Kind kind) const {
        std::vector<State> result;
        if (!may_write() || own_open()) return result;
        for (const Record& record : grants(view(), step_, rules_, now_)) {
            if (call_.function == Function::Execute && told() &&
                call_.answer.attempt != record.attempt)
                continue;
            Frame next;
            next.record = ended(record, kind);
            next.ended = true;
            result.push_back(changed(next));
        }
        return result;
    }

    std::vector<State> execute() const {
        if (told() && call_.answer.outcome != "execute") return looked(refusal_is_legal());
        const bool failed = call_.asked.action == "fail";
        if (told() && call_.answer.status != (failed ? "failed" : "completed")) return {};
        return ended_grants(failed ? Kind::Failed : Kind::Completed);
    }

    std::vector<State> once() const {
        if (!told() || call_.answer.yes) return ended_grants(Kind::Completed);
        return looked(is_final(view()) ||
                      (view().kind == Kind::Retryable && may_be_over(view().expires, now_)));
    }

    // ---- ends ----

    Record ended(Record record, Kind kind) const {
        record.kind = kind;
        record.body = call_.asked.body;
        record.status_code = call_.asked.status_code;
        record.by_operator = false;
        record.doubted = record.given_up = record.silent = false;
        Range end{now_.from, now_.to};
        if (kind == Kind::Unknown) return record;
        if (kind == Kind::Retryable) end = record.next_attempt = pause_end();
        if (is_final(record)) record.point.clear();
        if (kind == Kind::Exhausted)
            keep_exhausted(end, &record);
        else
            keep_long_enough(end, &record);
        keep_if_half_way(&record);
        return record;
    }

    // Without an explicit delay it is random, and ends within a second under the workload's
    // policies.
    Range pause_end() const {
        const Micros pause = call_.asked.retry_after;
        if (pause >= 0) return after_by(now_, pause);
        return {now_.from, plus(now_.to, kSecond)};
    }

    // Whether the call is about the present claim, and may change it.
    bool has_current_token() const {
        const bool own_unknown = owns() && own()->ended && view().kind == Kind::Unknown;
        if (own_open() || own_unknown)
            return call_.asked.token == 0 || call_.asked.token == view().token;
        return call_.asked.token != 0 && call_.asked.token == view().token;
    }

    // A claim begun and ended in this transaction needs no token.
    bool was_ended() const {
        const bool again = call_.function == Function::Unknown && view().kind == Kind::Unknown;
        if (takes_result(view()) && !again) return false;
        if (owns() && own()->ended && !own()->released && call_.asked.token == 0) return true;
        return call_.asked.token != 0 && call_.asked.token == view().token &&
               view().kind != Kind::Absent;
    }

    std::vector<State> end_claim() const {
        if (told() && !call_.answer.yes) return looked(was_ended());
        if (!may_write() || !has_current_token() || !takes_result(view())) return {};
        if (call_.function == Function::Release) return release();
        if (view().kind == Kind::Unknown && goes_on_unknown()) return {};
        Frame next = frame();
        next.record = ended(view(), kind_asked());
        next.ended |= next.open;
        next.open = false;
        return {changed(next)};
    }

    // An attempt that may have had its effect allows no other attempt.
    bool goes_on_unknown() const {
        return call_.function == Function::Unknown || call_.asked.retryable;
    }

    Kind kind_asked() const {
        if (call_.function == Function::Complete) return Kind::Completed;
        if (call_.function == Function::Unknown) return Kind::Unknown;
        if (!call_.asked.retryable) return Kind::Failed;
        const bool last = view().kind == Kind::Exhausted || attempts_used_up(view(), rules_);
        return last ? Kind::Exhausted : Kind::Retryable;
    }

    std::vector<State> release() const {
        if (view().kind != Kind::InProgress) return {};
        return {changed(released())};
    }

    // One step back: to the state before its transaction, to the attempt before, or to nothing.
    Frame released() const {
        Frame next = frame();
        const bool unwritten = next.open && !next.written;
        if (next.open) {
            next.record = next.before;
        } else if (view().attempt > 1) {
            next.record = given_back(view());
        } else {
            next.record = Record{};
        }
        next.ended = next.open;
        next.open = false;
        next.released = unwritten;
        return next;
    }

    Record given_back(Record record) const {
        record.kind = Kind::Retryable;
        record.doubted = false;
        record.attempt--;
        record.token = 0;  // that of the attempt has died with it
        record.next_attempt = {now_.from, now_.to};
        keep_long_enough(record.next_attempt, &record);
        keep_if_half_way(&record);
        return record;
    }

    std::vector<State> prolong() const {
        if (!may_write() || !has_current_token() || view().kind != Kind::InProgress) return {};
        Frame next = frame();
        next.record = view();
        if (call_.asked.lease > 0) next.record.lease = call_.asked.lease;
        next.record.lease_until = after_by(now_, next.record.lease);
        if (call_.function == Function::Checkpoint) next.record.point = call_.asked.point;
        next.written = true;
        return {changed(next)};
    }

    // ---- looking, and operators ----

    bool get_is_legal() const {
        const Record& record = view();
        if (!call_.answer.found) return may_be_gone(record, now_);
        if (record.kind == Kind::Absent || call_.answer.attempt != record.attempt) return false;
        const std::string& status = call_.answer.status;
        if (record.kind == Kind::InProgress)
            return (status == "in_progress" && !must_be_silent(record)) ||
                   (status == "unknown" && is_unknown()) ||
                   (status == "exhausted" && is_exhausted());
        return shows(record) && status == word_of(record.kind);
    }

    // A sweeper's written decision applies to all callers, unless the lease was prolonged. A last
    // attempt needs no written decision.
    bool must_be_silent(const Record& record) const {
        return (record.doubted || is_last(record, rules_)) && !own_open() &&
               !may_be_ahead(record.lease_until, now_);
    }

    static std::string word_of(Kind kind) {
        if (kind == Kind::Completed) return "completed";
        if (kind == Kind::Failed) return "failed";
        if (kind == Kind::Unknown) return "unknown";
        return kind == Kind::Exhausted ? "exhausted" : "retryable";
    }

    std::vector<State> forget() const {
        if (told() && !call_.answer.yes) return looked(may_be_gone(view(), now_));
        return forgotten();
    }

    std::vector<State> forgotten() const {
        if (!may_write() || own_open() || !is_idle(view())) return {};
        return {changed(Frame{})};
    }

    // A record exists, and the lease of its claim, if any, may have expired.
    bool is_idle(const Record& record) const {
        const bool lives = record.kind == Kind::InProgress && !lease_may_be_over(record, now_);
        return record.kind != Kind::Absent && !lives;
    }

    // A session that works on the key or only looks at it makes it busy.
    std::vector<State> erase() const {
        if (!told() || call_.answer.outcome == "done") return forgotten();
        return looked(call_.answer.outcome == "running" || may_be_gone(view(), now_));
    }

    // All records of a principal, by one scan of the call. If the answer is "complete", the last
    // scan has left no committed record.
    std::vector<State> forget_all() const {
        std::vector<State> result;
        const bool complete = told() && call_.answer.yes && !step_.scans_again;
        if (!complete || may_be_gone(state_.committed, now_)) result.push_back(state_);
        if (is_free() && is_idle(state_.committed)) result.emplace_back();
        return result;
    }

    // The policy's decision, if it was due; a rollback undoes it.
    std::vector<State> clean() const {
        std::vector<State> result{state_};
        if (state_.owner != 0) return result;
        if (const auto record = given_up_by(state_.committed, now_.to, rules_)) {
            Frame next;
            next.record = *record;
            result.push_back(changed(next));
        }
        return result;
    }

    std::vector<State> resolve() const {
        const bool reopens = call_.asked.action == "reopen";
        const bool decidable = reopens ? may_be_reopened() : may_be_decided();
        if (!may_write() || own_open() || !decidable) return {};
        Frame next;
        next.record = resolved();
        return {changed(next)};
    }

    bool may_be_decided() const { return view().kind != Kind::Absent && !is_final(view()); }

    bool may_be_reopened() const {
        const bool silent = view().kind == Kind::InProgress && is_exhausted();
        return view().kind == Kind::Failed || view().kind == Kind::Exhausted || silent;
    }

    // A record that runs again keeps its last error, and has no response.
    Record resolved() const {
        const std::string& action = call_.asked.action;
        Record record = view();
        record.token = 0;
        const Range now{now_.from, now_.to};
        if (runs_again(action)) {
            record.kind = Kind::Retryable;
            record.body.clear();
            record.status_code = 0;
            record.doubted = record.silent = false;
            record.next_attempt = now;
            record.by_operator = true;
        } else {
            record = ended(record, action == "fail" ? Kind::Failed : Kind::Completed);
        }
        keep_as_fresh(now, rules_, &record);
        keep_if_half_way(&record);
        return record;
    }

    // Records are dropped; the drop has to wait for every open claim.
    std::vector<State> drop() const {
        if (state_.owner != 0) return {};
        State next;
        return {next};
    }

    // ---- transactions ----

    std::vector<State> end_transaction() const {
        if (!owns()) return {state_};
        switch (call_.function) {
            case Function::Commit:
            case Function::CommitPrepared:
                if (step_.may_be_undone) return {committed(state_), undone(state_)};
                return {committed(state_)};
            case Function::Prepare:
                return {prepared()};
            case Function::RollbackTo:
                return {rolled_back_to(call_.asked.savepoint)};
            case Function::Rollback:
            case Function::RollbackPrepared:
                return {undone(state_)};
            default:
                return {state_};
        }
    }

    // Open claims are written now, so their leases count from now. A released claim leaves nothing
    // to keep.
    State prepared() const {
        if (state_.frames.back().released) return undone(state_);
        State next = state_;
        Frame written;
        written.record = committed(state_).committed;
        next.frames = {written};
        return next;
    }

    State rolled_back_to(int savepoint) const {
        State next = state_;
        while (!next.frames.empty() && next.frames.back().depth >= savepoint)
            next.frames.pop_back();
        return next.frames.empty() ? undone(next) : next;
    }

    // ---- refusals ----

    bool error_is_legal() const {
        const std::string& code = call_.sqlstate;
        if (code == "54000") return call_.asked.too_large;
        if (code == "ID404") return no_claim_is_legal();
        if (code == "ID409") return lost_is_legal();
        if (code == "22004")
            return call_.asked.token == 0 && !(owns() && (own_open() || own()->ended));
        if (code == "55006") return may_be_ahead(view().lease_until, now_);
        if (code == "55000") return state_error_is_legal();
        return code == "55P03";  // a wait has ended: another rule checks its cause
    }

    bool no_claim_is_legal() const {
        return may_be_gone(view(), now_) || (owns() && own()->released);
    }

    bool lost_is_legal() const {
        const bool must_be_running =
            call_.function == Function::Extend || call_.function == Function::Checkpoint;
        if (must_be_running && has_ended(view()) && !takes_result(view())) return true;
        if (view().kind == Kind::Absent) return false;
        return call_.asked.token != 0 && call_.asked.token != view().token;
    }

    bool state_error_is_legal() const {
        if (own_open()) return true;
        if (call_.function == Function::Resolve)
            return call_.asked.action == "reopen" ? !must_be_dead() : is_final(view());
        if (call_.function == Function::Once) return is_exhausted() || is_unknown();
        return has_current_token() && has_no_lease();
    }

    // Reopening it is allowed.
    bool must_be_dead() const {
        return view().kind == Kind::Failed || view().kind == Kind::Exhausted;
    }

    // Calls that need a claim.
    bool has_no_lease() const {
        if (call_.function == Function::Fail)
            return call_.asked.retryable && view().kind == Kind::Unknown;
        const bool needs = call_.function == Function::Release ||
                           call_.function == Function::Extend ||
                           call_.function == Function::Checkpoint;
        return needs && view().kind != Kind::InProgress && takes_result(view());
    }

    const State& state_;
    const Step& step_;
    const Call& call_;
    const Rules& rules_;
    const Window now_;
};

}  // namespace

std::optional<State> given_up(const State& state, Micros by, const Rules& rules) {
    const bool has_owner = state.owner != 0 && !state.frames.back().released;
    const auto record = has_owner ? std::nullopt : given_up_by(state.committed, by, rules);
    if (!record) return std::nullopt;
    State next;
    next.committed = *record;
    return next;
}

std::vector<State> after(const State& state, const Step& step, const Rules& rules) {
    return Move(state, step, rules).run();
}

bool only_looks(const Call& call) {
    if (call.function == Function::ForgetAll) return false;
    if (call.result == Result::Error) return true;
    if (call.function == Function::Get) return true;
    if (call.result == Result::Info) return false;
    switch (call.function) {
        case Function::Begin:
        case Function::Execute:
            return call.answer.outcome != "execute";
        case Function::Once:
        case Function::Complete:
        case Function::Fail:
        case Function::Unknown:
        case Function::Release:
        case Function::Forget:
            return !call.answer.yes;
        case Function::Erase:
            return call.answer.outcome != "done";
        case Function::Savepoint:
            return true;
        default:
            return false;
    }
}

std::string describe(const Record& record) {
    static const char* const kWords[] = {"absent",    "in progress", "completed", "failed",
                                         "retryable", "exhausted",   "unknown"};
    std::string text = kWords[static_cast<int>(record.kind)];
    if (record.kind == Kind::Absent) return text;
    if (record.doubted) text += ", doubted";
    if (record.silent) text += ", silent";
    if (record.given_up) text += ", given up";
    text +=
        " (attempt " + std::to_string(record.attempt) + ", token " + std::to_string(record.token);
    if (record.kind == Kind::InProgress)
        text += ", lease ends " + std::to_string(record.lease_until.lo) + ".." +
                std::to_string(record.lease_until.hi);
    else
        text += ", body " + record.body + ", retained to " + std::to_string(record.retained.lo) +
                ".." + std::to_string(record.retained.hi);
    return text + ")";
}

}  // namespace idem::chaos
