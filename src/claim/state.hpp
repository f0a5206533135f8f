// What a record is now: its status at this moment, whether its claim lives, and whether the session
// that holds the claim does.
#pragma once

#include "core/decision.hpp"

#include "store/record.hpp"

namespace idem::claim {

// What the protocol answers about a key.
struct Answer {
    std::optional<core::Decision> decision;  // none when only asked for information
    bool has_record;                         // false: nothing but the identity is known
    bool gave_way;                           // its wait for a lease held others up, and was ended
    store::Record record;
};

// The record as it is, without deciding anything. Works on a standby.
Answer get(const store::Identity& id);

// The record as a decision sees it at `now`, but for the request, which is taken to be the same.
core::Known facts_of(const store::Record& record, TimestampTz now);

// What it is now. Today's policy is not asked: it counts for the next caller of idem_begin.
core::Status status_now(const store::Record& record);

// Whether the record is of a claim that lives. The views ask it, too.
bool claim_lives(const store::Record& record);

// A claim with `hold` names the backend of its holder in the record. A session-level lock would say
// the same, but pg_advisory_unlock_all(), which drivers call to reset a session, and DISCARD ALL
// give up every one of them. A living backend keeps no other caller away; one that is gone shortens
// the wait for a lease.
void name_no_backend(store::Record* record);

// Whether it names a backend, and that lives.
bool session_lives(const store::Record& record);

}  // namespace idem::claim
