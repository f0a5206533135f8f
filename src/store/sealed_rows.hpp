// The keys that sealed this node's records and attempts. Asked when keys change, by SQL and as the
// owner, with either store.
#pragma once

#include "store/attempt.hpp"

namespace idem::store {

// A table of records or of attempts: one of ours, or a shard of it.
struct SealedTable {
    const char* ours;
    Oid table;
};

// The tables on this node, in the current memory context.
SealedTable* local_sealed_tables(int* count);

inline bool has_attempts(const SealedTable& table) {
    return table.ours == kAttemptTable;
}

struct SealedBy {
    text* key_id;
    std::int64_t rows;
};

// The number of rows that each key has sealed in a table, in the current memory context. By the
// index of sealed rows: a table may have millions in the clear.
SealedBy* sealed_rows(const SealedTable& table, int* count);

// The number of rows sealed with other keys than this one.
std::int64_t sealed_otherwise(const SealedTable& table, text* key_id);

// The next of those rows, up to `limit`, in the order of the primary key after `after`. Texts in
// `after` are empty at the beginning, as no key is. Fills `found`, with texts copied into the
// current memory context, and returns the number of rows. Records have only their identity.
// Attempts also have the token and the sealed values. `lock`: attempts are locked, and those locked
// by others are skipped.
int next_sealed_otherwise(const SealedTable& table, text* key_id, const Record& after, int limit,
                          bool lock, Record* found);

// Replaces the sealed values of attempts.
void replace_sealed(const SealedTable& table, const Record* attempts, int count);

}  // namespace idem::store
