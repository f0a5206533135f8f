// The secret in the locks of keys: the one row of idempotency.seed. Without it, a client that knows
// a key could compute other keys with the same lock.
#pragma once

#include "core/siphash.hpp"

#include "pg/pg.hpp"

namespace idem::store {

inline constexpr const char* kSeedTable = "seed";

// The same in every backend, and during a transaction. An error (55000) if there is none.
const core::SipKey& seed();

// The seed has changed, or is about to: makes every backend read it again. The triggers on the
// table, and on a node's copy of it, call it.
void announce_seed_change();

// Call it before inserting a row into this table, the seed's or a node's copy of it: removes the
// earlier rows. So a dump restores its seed over the one made by CREATE EXTENSION.
void make_room_for_seed(Oid table);

// Called once, when the library is loaded.
void watch_seed();

}  // namespace idem::store
