// A caller looks at the record, and only if that says "execute" does it try the lock of the key and
// look again: under the lock nobody else changes the record, so the second look decides, and a
// replay needs no lock. Where the answer will be "execute", as the last one was, the first look is
// of no use, and the lock is tried at once. A caller who is told to come back waits for whatever
// stands in its way and begins again, until the answer is final or `wait` is over.

#include "claim/begin.hpp"

#include "claim/grant.hpp"
#include "claim/holder.hpp"
#include "claim/locks.hpp"
#include "claim/open_claims.hpp"
#include "pg/boundary.hpp"
#include "stats/events.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// What a caller who is told to come back could wait for.
enum class Blocker { None, Lock, Writer, Lease };

// This backend's last answer. Sessions with new requests mostly go on with new ones, and those that
// repeat go on repeating.
bool last_was_execute;

// One turn of a caller: what it found, what was decided of it, and what there is to wait for.
struct Turn {
    Answer answer;
    TimestampTz now;
    TransactionId writer;  // another transaction that is deciding about the key now, if one is seen
    Blocker blocker;
};

// The end of a session says nothing to a fixed snapshot: what the session has committed may be
// newer. There only the lease counts.
core::Decision decide(const Question& question, Turn* turn) {
    core::Terms terms = question.terms;
    terms.now = turn->now;
    if (!turn->answer.has_record) return core::decide(nullptr, terms);
    store::Record* record = &turn->answer.record;
    core::Known facts = facts_of(*record, turn->now);
    if (question.fixed != nullptr) facts.holder_gone = false;
    facts.same_fingerprint = same_request(*record, question);
    record->status = core::status_at(facts, terms);
    return core::decide(&facts, terms);
}

core::Outcome outcome_of(const Turn& turn) {
    return turn.answer.decision->outcome;
}

Turn judge(const Question& question) {
    Turn turn{};
    turn.answer.record.id = question.id;
    store::Look look = store::find(question.id, &turn.answer.record);
    turn.answer.has_record = look.found;
    turn.writer = look.writer;
    turn.now = GetCurrentTimestamp();
    turn.answer.decision = decide(question, &turn);
    // What takes the place of an old record goes on with nothing of it, so that a sweeper who is
    // removing it is not waited for.
    bool afresh = turn.answer.decision->execution == core::Execution::Reuse;
    if (afresh && !look.has_new_version) turn.writer = InvalidTransactionId;
    if (outcome_of(turn) == core::Outcome::InProgress) turn.blocker = Blocker::Lease;
    return turn;
}

// Another transaction is deciding about the key, and has its lock or has written the row already.
Turn decided_elsewhere(const Question& question, Blocker blocker, TransactionId writer) {
    Turn turn{};
    turn.answer.decision = core::kDecidedElsewhere;
    turn.answer.record.id = question.id;
    turn.writer = writer;
    turn.blocker = blocker;
    return turn;
}

// Nothing may be granted while the row that a writer leaves behind is not known.
bool may_grant(const Turn& turn) {
    return outcome_of(turn) == core::Outcome::Execute && !TransactionIdIsValid(turn.writer);
}

// What an absent row says is certain under the lock alone: a look may miss one that is being moved.
bool needs_lock(const Turn& turn) {
    return may_grant(turn) || (!turn.answer.has_record && !TransactionIdIsValid(turn.writer));
}

// A look with which nothing is granted. Each replay ends here, and a call would copy the record.
pg_attribute_always_inline Turn turn_without_grant(const Question& question, const Turn& turn) {
    if (outcome_of(turn) == core::Outcome::Execute ||
        (!turn.answer.has_record && TransactionIdIsValid(turn.writer)))
        return decided_elsewhere(question, Blocker::Writer, turn.writer);
    return turn;
}

// This transaction's own claim: it would wait for itself, so there is nothing to wait for.
Turn own_turn(const Question& question, const OpenClaim* claim) {
    Turn turn{};
    turn.answer.record = current_record(claim);
    turn.answer.has_record = true;
    turn.answer.decision = core::kOwnClaim;
    if (!same_request(turn.answer.record, question)) turn.answer.decision = core::kOtherRequest;
    return turn;
}

// Under the lock nothing changes any more, so this look decides. A loser keeps no lock.
Turn locked_turn(const Question& question, std::int64_t left) {
    Turn turn = judge(question);
    if (!may_grant(turn)) {
        unlock(question.id);
        return turn_without_grant(question, turn);
    }
    if (grant(question, turn.now, left, &turn.answer)) return turn;
    unlock(question.id);
    return decided_elsewhere(question, Blocker::Lock, InvalidTransactionId);
}

// Looks first and locks only where it must, unless the lock will be needed anyhow. That is a guess:
// whoever can't have the lock goes on as if it had not been tried, and a full lock table keeps no
// replay from being answered.
Turn unlocked_turn(const Question& question, std::int64_t left) {
    if (last_was_execute && try_lock_if_room(question.id)) return locked_turn(question, left);
    Turn turn = judge(question);
    if (!needs_lock(turn)) return turn_without_grant(question, turn);
    if (try_lock(question.id)) return locked_turn(question, left);
    // Whoever has the lock may have just committed.
    turn = judge(question);
    if (needs_lock(turn)) return decided_elsewhere(question, Blocker::Lock, InvalidTransactionId);
    return turn_without_grant(question, turn);
}

Turn take_turn(const Question& question, bool locked, std::int64_t left) {
    if (const OpenClaim* own = open_claim(question.id)) return own_turn(question, own);
    return locked ? locked_turn(question, left) : unlocked_turn(question, left);
}

// True if the wait has brought us the key's lock.
bool wait_for(const Turn& turn, const Question& question, Patience* patience) {
    std::int64_t left = time_left(*patience);
    patience->waited = true;
    if (turn.blocker != Blocker::Lease) patience->lease_wait_start = 0;
    switch (turn.blocker) {
        case Blocker::Lock:
            return wait_for_lock(question.id, left);
        case Blocker::Writer:
            wait_for_writer(turn.writer, left);
            return false;
        case Blocker::Lease:
            wait_for_lease(patience, left);
            return false;
        case Blocker::None:
            break;
    }
    return false;
}

void account_for(const Answer& answer, std::int64_t waited) {
    const store::Identity& id = answer.record.id;
    stats::account_for({answer.decision->outcome, answer.decision->execution,
                        pg::bytes_of(id.scope), pg::bytes_of(id.principal), pg::bytes_of(id.key),
                        answer.has_record ? answer.record.attempt : 0, waited});
}

[[noreturn]] void raise_still_deciding() {
    ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                    errmsg("another execution of this key has not ended"),
                    errdetail("The other execution may still succeed or fail."),
                    errhint("Retry later, or allow a longer wait.")));
    pg_unreachable();
}

[[noreturn]] void raise_deadlock() {
    ereport(ERROR,
            (errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
             errmsg("waiting for the lease of this key may be a deadlock"),
             errdetail("Another session waits for a lock of this transaction, and may be the "
                       "holder of the lease."),
             errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

[[noreturn]] void raise_retry_pending() {
    ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                    errmsg("the last execution of this key failed and may not be repeated yet"),
                    errdetail("The pause before its next attempt has not ended."),
                    errhint("Retry later.")));
    pg_unreachable();
}

[[noreturn]] void raise_needs_operator(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is %s", status),
                    errdetail("No call executes it again."),
                    errhint("An operator can decide with idem_resolve.")));
    pg_unreachable();
}

// Complete at once, the claim never was open to anybody.
void complete_at_once(const store::Identity& id) {
    OpenClaim* claim = open_claim(id);
    finish_silently(claim);
    forget_ended_claim(claim);
}

}  // namespace

// The last answer is always a fresh one.
Answer begin(const Question& given) {
    pg::require_writable(given.function);
    Question question = settle(given);
    Patience patience = patience_for(*question.wait);
    for (bool locked = false;;) {
        std::int64_t left = time_left(patience);
        Turn turn = take_turn(question, locked, left);
        if (turn.blocker == Blocker::None || left <= 0) {
            account_for(turn.answer, time_waited(patience));
            last_was_execute = outcome_of(turn) == core::Outcome::Execute;
            turn.answer.gave_way = patience.gave_way;
            return turn.answer;
        }
        locked = wait_for(turn, question, &patience);
    }
}

// The lock is asked for before the look: whoever has had it may have committed by then, and the row
// tells. What a record that is there says, the lock does not change, as in unlocked_turn().
Forecast foresee(const Question& settled) {
    Question question = settled;
    question.fixed = nullptr;
    if (const OpenClaim* own = open_claim(question.id)) {
        Turn turn = own_turn(question, own);
        return {*turn.answer.decision, GetCurrentTimestamp(), this_transaction(), turn.answer};
    }
    KeyHolder holder = holder_of_lock(question.id);
    Turn seen = judge(question);
    Turn told = holder.exists && needs_lock(seen)
                    ? decided_elsewhere(question, Blocker::Lock, InvalidTransactionId)
                : may_grant(seen) ? seen
                                  : turn_without_grant(question, seen);
    if (TransactionIdIsValid(seen.writer)) holder = holder_of_row(seen.writer);
    return {*told.answer.decision, seen.now, holder, seen.answer};
}

bool once(const Question& question) {
    Answer answer = begin(question);
    switch (answer.decision->outcome) {
        case core::Outcome::Execute:
            complete_at_once(answer.record.id);
            return true;
        case core::Outcome::Replay:
        case core::Outcome::Expired:
        case core::Outcome::Mismatch:
            return false;
        case core::Outcome::Exhausted:
            raise_needs_operator("exhausted");
        case core::Outcome::Unknown:
            raise_needs_operator("unknown");
        case core::Outcome::RetryLater:
            raise_retry_pending();
        case core::Outcome::InProgress:
            break;
    }
    if (open_claim(answer.record.id) != nullptr) raise_own_claim_open();
    if (answer.gave_way) raise_deadlock();
    raise_still_deciding();
}

}  // namespace idem::claim
