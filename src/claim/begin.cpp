// A call looks at the record, and only if that says "execute" does it try the lock of the key and
// look again: under the lock the record changes no more, so the second look decides, and a replay
// needs no lock. Where the answer will be "execute", as the last one was, the first look is of no
// use, and the lock is tried at once. A call that is told to come back waits for whatever stands in
// its way and begins again, until the answer is final or `wait` has passed.

#include "claim/begin.hpp"

#include "claim/grant.hpp"
#include "claim/holder.hpp"
#include "claim/open_claims.hpp"
#include "claim/waiters.hpp"
#include "pg/boundary.hpp"
#include "pg/wait.hpp"
#include "stats/events.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// What a call that is told to come back could wait for.
enum class Blocker { None, Lock, Writer, Lease };

// This backend's last answer. Sessions with new requests mostly go on with new ones, and those that
// repeat go on repeating.
bool last_was_execute;

// One turn of a call: what it found, what was decided of it, and what there is to wait for.
struct Turn {
    Answer answer;
    TimestampTz now;
    TransactionId writer;  // another transaction that is deciding about the key now, if one is seen
    Blocker blocker;
};

core::Outcome outcome_of(const Turn& turn) {
    return turn.answer.decision->outcome;
}

// The turn begins with this look at the record.
void look(const Settled& question, Turn* turn) {
    *turn = Turn{};
    store::Record* record = &turn->answer.record;
    record->id = question.id;
    store::Look look = store::find(question.id, record);
    turn->answer.has_record = look.found;
    turn->now = GetCurrentTimestamp();
    core::Decision decision = decision_about(look.found ? record : nullptr, question, turn->now);
    turn->answer.decision = decision;
    // What takes the place of an old record goes on with nothing of it, so that a sweeper who is
    // removing it is not waited for.
    bool afresh = decision.execution == core::Execution::Reuse;
    turn->writer = afresh && !look.has_new_version ? InvalidTransactionId : look.writer;
    if (decision.outcome == core::Outcome::InProgress) turn->blocker = Blocker::Lease;
}

// Another transaction is deciding about the key, and has its lock or has written the row already.
void decided_elsewhere(const Settled& question, Blocker blocker, TransactionId writer, Turn* turn) {
    *turn = Turn{};
    turn->answer.decision = core::kDecidedElsewhere;
    turn->answer.record.id = question.id;
    turn->writer = writer;
    turn->blocker = blocker;
}

// Nothing may be granted while the row that a writer leaves behind is not known.
bool may_grant(const Turn& turn) {
    return outcome_of(turn) == core::Outcome::Execute && !TransactionIdIsValid(turn.writer);
}

// What an absent row says is certain under the lock alone: a look may miss one that is being moved.
bool needs_lock(const Turn& turn) {
    return !TransactionIdIsValid(turn.writer) &&
           (outcome_of(turn) == core::Outcome::Execute || !turn.answer.has_record);
}

// A look with which nothing is granted, and which meets a writer, can't tell more than that.
void tell_of_writer(const Settled& question, Turn* turn) {
    if (outcome_of(*turn) == core::Outcome::Execute ||
        (!turn->answer.has_record && TransactionIdIsValid(turn->writer)))
        decided_elsewhere(question, Blocker::Writer, turn->writer, turn);
}

// This transaction's own claim, if it has one: it would wait for itself, so there is nothing to
// wait for.
bool find_own(const Settled& question, Turn* turn) {
    const OpenClaim* claim = open_claim(question.id);
    if (claim == nullptr) return false;
    *turn = Turn{};
    turn->answer.record = current_record(claim);
    turn->answer.has_record = true;
    bool same = same_request(turn->answer.record, question);
    turn->answer.decision = same ? core::kOwnClaim : core::kOtherRequest;
    return true;
}

// Looks first and locks only where it must, unless the lock will be needed anyhow. That is a guess:
// a call that can't have the lock goes on as if it had not been tried, and a full lock table keeps
// no replay from being answered. Under the lock nothing changes any more, so that look decides. A
// call that is not granted the key keeps no lock.
void take_turn(const Settled& question, bool locked, std::int64_t left, Turn* turn) {
    const store::Identity& id = question.id;
    if (find_own(question, turn)) return;
    if (!locked) locked = last_was_execute && try_lock_if_room(id);
    look(question, turn);
    if (!locked && needs_lock(*turn)) {
        locked = try_lock(id);
        // Another transaction that has or had the lock may have just committed.
        look(question, turn);
        if (!locked && needs_lock(*turn))
            return decided_elsewhere(question, Blocker::Lock, InvalidTransactionId, turn);
    }
    bool free = locked && may_grant(*turn);
    if (free && grant(question, turn->now, left, &turn->answer)) return;
    if (locked) unlock(id);
    if (free)
        decided_elsewhere(question, Blocker::Lock, InvalidTransactionId, turn);
    else
        tell_of_writer(question, turn);
}

// True if the wait has brought us the key's lock.
bool wait_for(const Turn& turn, const Settled& question, Patience* patience) {
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
            wait_for_lease(turn.answer.record, patience, left);
            return false;
        case Blocker::None:
            break;
    }
    return false;
}

// Begins turns until one is final or no time is left: the last answer is always a fresh one.
Answer answer_to(const Settled& question) {
    Patience patience = patience_for(question.wait);
    Turn turn;
    for (bool locked = false;;) {
        std::int64_t left = time_left(patience);
        take_turn(question, locked, left, &turn);
        if (turn.blocker == Blocker::None || left <= 0) break;
        locked = wait_for(turn, question, &patience);
    }
    note_waiting_ended();
    std::int64_t waited = patience.waited ? Max(pg::monotonic_micros() - patience.start, 1) : 0;
    account_for(turn.answer, waited);
    last_was_execute = turn.answer.decision->outcome == core::Outcome::Execute;
    turn.answer.gave_way = patience.gave_way;
    return turn.answer;
}

[[noreturn]] void raise_needs_operator(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is %s", status),
                    errdetail("No call executes it again."),
                    errhint("An operator can decide with idem_resolve.")));
    pg_unreachable();
}

}  // namespace

void account_for(const Answer& answer, std::int64_t waited) {
    const store::Record& record = answer.record;
    stats::account_for({answer.decision->outcome, answer.decision->execution,
                        pg::bytes_of(record.id.scope), pg::bytes_of(record.id.principal),
                        pg::bytes_of(record.id.key), answer.has_record ? record.attempt : 0,
                        waited});
}

core::Decision decision_about(store::Record* record, const Settled& question, TimestampTz now) {
    core::Terms terms = question.terms;
    terms.now = now;
    if (record == nullptr) return core::decide(nullptr, terms);
    core::Known facts = facts_of(*record, now);
    // The end of a session says nothing to a fixed snapshot: what the session has committed may be
    // newer. There only the lease counts.
    if (question.fixed != nullptr) facts.holder_gone = false;
    facts.same_fingerprint = same_request(*record, question);
    record->status = core::status_at(facts, terms);
    return core::decide(&facts, terms);
}

Answer begin(const Question& question) {
    pg::require_writable(question.function);
    return answer_to(settle(question));
}

// The lock is asked for before the look: a transaction that has had it may have committed by then,
// and the row tells. The lock changes nothing about a record that is there, as in take_turn().
Forecast foresee(const Settled& settled) {
    Settled question = settled;
    question.fixed = nullptr;
    Turn turn;
    if (find_own(question, &turn))
        return {*turn.answer.decision, GetCurrentTimestamp(), this_transaction(), turn.answer};
    KeyHolder holder = holder_of_lock(question.id);
    look(question, &turn);
    Forecast forecast{*turn.answer.decision, turn.now, holder, turn.answer};
    if (TransactionIdIsValid(turn.writer)) forecast.holder = holder_of_row(turn.writer);
    if (holder.exists && needs_lock(turn)) {
        forecast.decision = core::kDecidedElsewhere;
    } else if (!may_grant(turn)) {
        tell_of_writer(question, &turn);
        forecast.decision = *turn.answer.decision;
    }
    return forecast;
}

bool once(const Question& question) {
    pg::require_writable(question.function);
    return once(settle(question));
}

bool once(const Settled& settled) {
    Answer answer = answer_to(settled);
    switch (answer.decision->outcome) {
        case core::Outcome::Execute: {
            // Complete at once, the claim never was open to another session.
            OpenClaim* claim = open_claim(answer.record.id);
            finish_silently(claim, settled.policy.values);
            forget_ended_claim(claim);
            return true;
        }
        case core::Outcome::Replay:
        case core::Outcome::Expired:
        case core::Outcome::Mismatch:
            return false;
        case core::Outcome::Exhausted:
            raise_needs_operator("exhausted");
        case core::Outcome::Unknown:
            raise_needs_operator("unknown");
        case core::Outcome::RetryLater:
            ereport(ERROR,
                    (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                     errmsg("the last execution of this key failed and may not be repeated yet"),
                     errdetail("The pause before its next attempt has not ended."),
                     errhint("Retry later.")));
        case core::Outcome::InProgress:
            break;
    }
    if (open_claim(answer.record.id) != nullptr) raise_own_claim_open();
    if (answer.gave_way)
        ereport(ERROR,
                (errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
                 errmsg("waiting for the lease of this key may be a deadlock"),
                 errdetail("Another session waits for a lock of this transaction, and may be the "
                           "holder of the lease."),
                 errhint("Roll back and retry the transaction.")));
    ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                    errmsg("another execution of this key has not ended"),
                    errdetail("The other execution may still succeed or fail."),
                    errhint("Retry later, or allow a longer wait.")));
    pg_unreachable();
}

}  // namespace idem::claim
