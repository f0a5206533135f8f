// The master keys that have encrypted values in this database: idempotency.encryption_key has the
// check value of each, from its first use. So a key file with another key under a known id is found
// out before that key encrypts a value.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

inline constexpr const char* kKeyTable = "encryption_key";

enum class KeyUse {
    First,  // this database knows no key with that id
    Same,
    Other,  // the id belonged to another key
};

// Compares the key with that id and check value with the one of its first use.
KeyUse use_of_key(std::string_view id, std::string_view check);

// Writes the check value down, in this transaction.
void keep_key(std::string_view id, std::string_view check);

// Keys have been added or removed: makes every backend read them again. The triggers on the table
// call it.
void announce_key_change();

// Called once, when the library is loaded.
void watch_keys();

}  // namespace idem::store
