// A caller looks at the record, and only if that says "execute" does it try the lock of the key and
// look again: under the lock nobody else changes the record, so the second look decides, and a
// replay takes no lock at all. A caller who is told to come back waits for whatever stands in its
// way and begins again, until the answer is final or `wait` is over.

#include "claim/begin.hpp"

#include "claim/account.hpp"
#include "claim/grant.hpp"
#include "claim/holder.hpp"
#include "claim/locks.hpp"
#include "claim/open_claims.hpp"
#include "pg/errors.hpp"
#include "store/store.hpp"

namespace idem::claim {

namespace {

// What a caller who is told to come back could wait for.
enum class Blocker { None, Lock, Writer, Lease };

// One look at a key: what was found, what was decided of it, and what there is to wait for.
struct Look {
    Answer answer;
    TimestampTz now;
    TransactionId writer;  // another transaction that is deciding about the key now, if one is seen
    Blocker blocker;
};

// Times that are absent never lie ahead.
std::int64_t or_past(TimestampTz time) {
    return time == pg::kNoTime ? 0 : time;
}

// The end of a session says nothing to a fixed snapshot: what the session has committed may be
// newer. There only the lease counts.
bool is_abandoned_early(const store::Record& record, const Question& question, TimestampTz now) {
    return question.fixed == nullptr && now < record.lease_until && holder_is_gone(record);
}

core::RecordFacts facts_of(const store::Record& record, const Question& question, TimestampTz now) {
    core::RecordFacts facts{};
    facts.status = record.status;
    facts.attempt = record.attempt;
    facts.lease_until = or_past(record.lease_until);
    facts.next_attempt_at = or_past(record.next_attempt_at);
    facts.expires_at = record.expires_at;
    facts.retained_until = record.retained_until;
    facts.claimed_at = record.claimed_at;
    facts.released_by_operator = record.resolved_by != nullptr;
    facts.same_fingerprint = same_request(record, question);
    facts.holder_gone = is_abandoned_early(record, question, now);
    return facts;
}

// What the row does not say: it follows from the time and the policy.
bool is_unknown(const core::RecordFacts& record, const core::Asked& rules) {
    return record.status == core::Status::InProgress &&
           (rules.now >= record.lease_until || record.holder_gone) &&
           rules.on_lease_expiry == core::OnLeaseExpiry::Unknown;
}

core::Decision decide(const Question& question, Look* look) {
    core::Asked rules = question.rules;
    rules.now = look->now;
    if (!look->answer.has_record) return core::decide(nullptr, rules);
    store::Record* record = &look->answer.record;
    if (record->no_takeover) rules.on_lease_expiry = core::OnLeaseExpiry::Unknown;
    core::RecordFacts facts = facts_of(*record, question, look->now);
    if (is_unknown(facts, rules)) record->status = core::Status::Unknown;
    return core::decide(&facts, rules);
}

Look look_at(const Question& question) {
    Look look{};
    look.answer.record.id = question.id;
    store::Finding finding = store::records().find(question.id, &look.answer.record);
    look.answer.has_record = finding.found;
    look.writer = finding.writer;
    look.now = GetCurrentTimestamp();
    core::Decision decision = decide(question, &look);
    look.answer.outcome = decision.outcome;
    look.answer.claim = decision.claim;
    look.answer.retry_after = decision.retry_after;
    if (decision.outcome == core::Outcome::InProgress) look.blocker = Blocker::Lease;
    return look;
}

// Another transaction is deciding about the key, and has its lock or has written the row already.
Look held_elsewhere(const Question& question, Blocker blocker, TransactionId writer) {
    Look look{};
    look.answer.outcome = core::kHeldElsewhere.outcome;
    look.answer.record.id = question.id;
    look.writer = writer;
    look.blocker = blocker;
    return look;
}

// Nothing may be granted while the row that a writer leaves behind is not known.
bool may_grant(const Look& look) {
    return look.answer.outcome == core::Outcome::Execute && !TransactionIdIsValid(look.writer);
}

// What an absent row says is certain under the lock alone: a look may miss one that is being moved.
bool needs_lock(const Look& look) {
    return may_grant(look) || (!look.answer.has_record && !TransactionIdIsValid(look.writer));
}

// A look with which nothing is granted.
Look without_grant(const Question& question, const Look& look) {
    if (look.answer.outcome == core::Outcome::Execute ||
        (!look.answer.has_record && TransactionIdIsValid(look.writer)))
        return held_elsewhere(question, Blocker::Writer, look.writer);
    return look;
}

// This transaction's own claim: it would wait for itself, so there is nothing to wait for.
Look own_claim(const Question& question, const OpenClaim* claim) {
    Look look{};
    look.answer.record = current_record(claim);
    look.answer.has_record = true;
    look.answer.outcome = same_request(look.answer.record, question) ? core::Outcome::InProgress
                                                                     : core::Outcome::Mismatch;
    return look;
}

// Under the lock nothing changes any more, so this look decides. A loser keeps no lock.
Look locked_look(const Question& question, std::int64_t left) {
    Look look = look_at(question);
    if (!may_grant(look)) {
        unlock(question.id);
        return without_grant(question, look);
    }
    if (grant(question, look.now, left, &look.answer)) return look;
    unlock(question.id);
    return held_elsewhere(question, Blocker::Lock, InvalidTransactionId);
}

// Looks first and locks only where it must, so that a replay takes no lock.
Look unlocked_look(const Question& question, std::int64_t left) {
    Look look = look_at(question);
    if (!needs_lock(look)) return without_grant(question, look);
    if (try_lock(question.id)) return locked_look(question, left);
    // Whoever has the lock may have just committed.
    look = look_at(question);
    if (needs_lock(look)) return held_elsewhere(question, Blocker::Lock, InvalidTransactionId);
    return without_grant(question, look);
}

Look look(const Question& question, bool locked, std::int64_t left) {
    if (const OpenClaim* own = open_claim(question.id)) return own_claim(question, own);
    return locked ? locked_look(question, left) : unlocked_look(question, left);
}

// True if the wait has brought us the key's lock.
bool wait_for(const Look& look, const Question& question, Patience* patience) {
    std::int64_t left = time_left(*patience);
    patience->waited = true;
    if (look.blocker != Blocker::Lease) patience->lease_wait_start = 0;
    switch (look.blocker) {
        case Blocker::Lock:
            return wait_for_lock(question.id, left);
        case Blocker::Writer:
            wait_for_writer(look.writer, left);
            return false;
        case Blocker::Lease:
            wait_for_lease(patience, left);
            return false;
        case Blocker::None:
            break;
    }
    return false;
}

[[noreturn]] void raise_still_deciding() {
    ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                    errmsg("another execution of this key has not ended"),
                    errdetail("Neither true nor false would be right yet."),
                    errhint("Retry later, or allow a longer wait.")));
    pg_unreachable();
}

[[noreturn]] void raise_retry_pending() {
    ereport(ERROR,
            (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
             errmsg("the last execution of this key failed and may not be repeated yet"),
             errdetail("The pause before its next attempt is not over."), errhint("Retry later.")));
    pg_unreachable();
}

[[noreturn]] void raise_needs_operator(const char* status) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the record of this key is %s", status),
                    errdetail("It can't be executed again by itself."),
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
        Look found = look(question, locked, left);
        if (found.blocker == Blocker::None || left <= 0) {
            account_for(found.answer, time_waited(patience));
            return found.answer;
        }
        locked = wait_for(found, question, &patience);
    }
}

bool once(const Question& question) {
    Answer answer = begin(question);
    switch (*answer.outcome) {
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
    if (open_claim(answer.record.id) != nullptr) pg::raise_own_claim_open();
    raise_still_deciding();
}

}  // namespace idem::claim
