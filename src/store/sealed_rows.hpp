// Which keys have sealed the records and attempts that this node has. Nothing indexes that: each
// question is one walk over the table, asked when keys are changed, by SQL and as the owner,
// whatever store serves.
#pragma once

#include "store/attempt.hpp"

namespace idem::store {

// A table of records or of attempts: one of ours, or a shard of it.
struct SealedTable {
    const char* ours;
    Oid table;
};

// Those that this node has, in the current memory context.
SealedTable* local_sealed_tables(int* count);

inline bool has_attempts(const SealedTable& table) {
    return table.ours == kAttemptTable;
}

struct SealedBy {
    text* key_id;
    std::int64_t rows;
};

// How many rows each key has sealed in a table, in the current memory context.
SealedBy* sealed_rows(const SealedTable& table, int* count);

// How many were sealed with other keys than this one.
std::int64_t sealed_otherwise(const SealedTable& table, text* key_id);

// The next of those, up to `limit`, in the order of the primary key after `after`, whose texts are
// empty at the beginning: no key is. Fills `found`, whose texts are copies in the current memory
// context, and answers how many there are. Of records only the identity; of attempts also the token
// and what is sealed: they are locked, passing over those that others have locked.
int next_sealed_otherwise(const SealedTable& table, text* key_id, const Record& after, int limit,
                          Record* found);

// Replaces what is sealed of attempts.
void replace_sealed(const SealedTable& table, const Record* attempts, int count);

}  // namespace idem::store
