// The master keys of encrypted records, as idempotency.encryption_key_file has them.
#pragma once

#include "core/key_ring.hpp"

#include "pg/pg.hpp"

namespace idem::config {

// This backend's copy of the file: read when it is first asked for, and again after a reload. It
// holds until the next call. nullptr if there are none to be had; `why` is a sentence, which tells
// nothing of the file but what is wrong with it.
core::KeyRing* encryption_keys(const char** why);

// The same, read in any case: for whoever misses a key that another session knows already, which
// has noticed a reload earlier.
core::KeyRing* encryption_keys_anew(const char** why);

}  // namespace idem::config
