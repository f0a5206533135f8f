#include "claim/begin.hpp"

#include "claim/account.hpp"
#include "claim/asking.hpp"
#include "claim/finish.hpp"
#include "claim/grant.hpp"
#include "claim/key_lock.hpp"
#include "claim/open_claims.hpp"
#include "claim/waiting.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

// What a caller who is told to come back could wait for.
enum class Blocker { None, Lock, Writer, Lease };

struct Turn {
    Answer answer;
    Blocker blocker;
    TransactionId writer;
};

Turn turn_of(const Answer& answer) {
    return {answer, answer.outcome == core::Outcome::InProgress ? Blocker::Lease : Blocker::None,
            InvalidTransactionId};
}

// Another transaction is deciding about the key, and has its lock or has written the row already.
Turn held_elsewhere(const Asking& asking, Blocker blocker, TransactionId writer) {
    Answer answer{};
    answer.outcome = core::kHeldElsewhere.outcome;
    answer.record.id = asking.id;
    return {answer, blocker, writer};
}

// Nothing may be granted while the row that a writer leaves behind is not known.
bool may_grant(const Judgement& judgement) {
    return judgement.answer.outcome == core::Outcome::Execute &&
           !TransactionIdIsValid(judgement.writer);
}

// What an absent row says is certain under the lock alone: a look may miss one that is being moved.
bool needs_lock(const Judgement& judgement) {
    return may_grant(judgement) ||
           (!judgement.answer.has_record && !TransactionIdIsValid(judgement.writer));
}

Turn turn_without_grant(const Asking& asking, const Judgement& judgement) {
    if (judgement.answer.outcome == core::Outcome::Execute ||
        (!judgement.answer.has_record && TransactionIdIsValid(judgement.writer)))
        return held_elsewhere(asking, Blocker::Writer, judgement.writer);
    return turn_of(judgement.answer);
}

// This transaction's own claim: it would wait for itself, so there is nothing to wait for.
Turn own_turn(const Asking& asking, const OpenClaim* claim) {
    Answer answer{};
    answer.record = current_record(claim);
    answer.has_record = true;
    answer.outcome =
        same_request(answer.record, asking) ? core::Outcome::InProgress : core::Outcome::Mismatch;
    return {answer, Blocker::None, InvalidTransactionId};
}

// Under the lock nothing changes any more, so this look decides. A loser keeps no lock.
Turn locked_turn(const Asking& asking, std::int64_t left) {
    Judgement judgement = judge(asking);
    if (!may_grant(judgement)) {
        unlock(asking.id);
        return turn_without_grant(asking, judgement);
    }
    if (grant(asking, &judgement, left)) return turn_of(judgement.answer);
    unlock(asking.id);
    return held_elsewhere(asking, Blocker::Lock, InvalidTransactionId);
}

// Looks first and locks only where it must, so that a replay takes no lock.
Turn unlocked_turn(const Asking& asking, std::int64_t left) {
    Judgement judgement = judge(asking);
    if (!needs_lock(judgement)) return turn_without_grant(asking, judgement);
    if (try_lock(asking.id)) return locked_turn(asking, left);
    // Whoever has the lock may have just committed.
    judgement = judge(asking);
    if (needs_lock(judgement)) return held_elsewhere(asking, Blocker::Lock, InvalidTransactionId);
    return turn_without_grant(asking, judgement);
}

Turn take_turn(const Asking& asking, bool locked, std::int64_t left) {
    if (const OpenClaim* own = open_claim(asking.id)) return own_turn(asking, own);
    return locked ? locked_turn(asking, left) : unlocked_turn(asking, left);
}

// True if the wait has brought us the key's lock.
bool wait_for(const Turn& turn, const Asking& asking, std::int64_t left, Patience* patience) {
    if (turn.blocker != Blocker::Lease) patience->lease_wait_start = 0;
    switch (turn.blocker) {
        case Blocker::Lock:
            return wait_for_lock(asking.id, left);
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

// Asks until the answer is final or `wait` is over; the last answer is always a fresh one.
Answer ask(const Asking& asking) {
    Patience patience = patience_for(asking.wait);
    for (bool locked = false;;) {
        std::int64_t left = time_left(patience);
        Turn turn = take_turn(asking, locked, left);
        if (turn.blocker == Blocker::None || left <= 0) {
            account_for(turn.answer, time_waited(patience));
            return turn.answer;
        }
        patience.waited = true;
        locked = wait_for(turn, asking, time_left(patience), &patience);
    }
}

}  // namespace

Answer begin(const BeginCall& call) {
    pg::require_writable(call.function);
    return ask(settle(call));
}

bool once(const BeginCall& call) {
    Answer answer = begin(call);
    switch (*answer.outcome) {
        case core::Outcome::Execute: {
            OpenClaim* claim = open_claim(answer.record.id);
            finish_silently(claim);
            forget_ended_claim(claim);
            return true;
        }
        case core::Outcome::Replay:
        case core::Outcome::Expired:
        case core::Outcome::Mismatch:
            return false;
        case core::Outcome::Exhausted:
            pg::raise_needs_operator("exhausted");
        case core::Outcome::Unknown:
            pg::raise_needs_operator("unknown");
        case core::Outcome::RetryLater:
            pg::raise_retry_pending();
        default:
            break;
    }
    if (open_claim(answer.record.id) != nullptr) pg::raise_own_claim_open();
    pg::raise_still_deciding();
}

}  // namespace idem::claim
