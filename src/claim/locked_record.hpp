// The record of a key under its lock: what it says now is what holds.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// Takes the key's lock and looks, waiting for whoever is deciding about the key: until that
// transaction has ended, nobody knows. False if there is no record; the lock is taken all the same.
bool lock_and_find(const store::Identity& id, store::Record* record);

}  // namespace idem::claim
