// The master keys of encrypted records, from idempotency.encryption_key_file.
#pragma once

#include "core/key_ring.hpp"

#include "pg/pg.hpp"

namespace idem::config {

// This backend's copy of the file, read at the first call and again after a reload. Valid until the
// next call. nullptr if there are no keys; `why` is then a sentence, which tells only the fault of
// the file, not its content.
core::KeyRing* encryption_keys(const char** why);

// Reads the file in any case: for a backend that lacks a key which another session already uses,
// because that session noticed a reload earlier.
core::KeyRing* encryption_keys_anew(const char** why);

}  // namespace idem::config
