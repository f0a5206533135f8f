// The secret that the locks of keys are made with: the one row of idempotency.seed. Without it,
// whoever knows a key could find others with the same lock.
#pragma once

#include "core/siphash.hpp"

#include "pg/pg.hpp"

namespace idem::store {

inline constexpr const char* kSeedTable = "seed";

// The same in every backend, and during a transaction. An error (55000) if there is none.
const core::SipKey& seed();

// The seed has changed, or is about to: every backend reads it again. Called by the triggers on the
// table, and on a node's copy of it.
void announce_seed_change();

// Before a row comes into this table, the seed's or a node's copy of it: the rows that were there
// go. So a dump brings its seed, where CREATE EXTENSION has made one.
void make_room_for_seed(Oid table);

// Called once, when the library is loaded.
void watch_seed();

}  // namespace idem::store
