// Which keys have sealed the records that this node has. Nothing indexes that: each question is one
// walk over the table, asked when keys are changed, by SQL and as the owner, whatever store serves.
#pragma once

#include "store/record.hpp"
#include "store/record_table.hpp"

namespace idem::store {

struct SealedBy {
    text* key_id;
    std::int64_t records;
};

// How many records each key has sealed in a table, in the current memory context.
SealedBy* sealed_records(const RecordTable& table, int* count);

// How many were sealed with other keys than this one.
std::int64_t sealed_otherwise(const RecordTable& table, text* key_id);

// The next of those, up to `limit`, in the order of the primary key after `after`, whose texts are
// empty at the beginning: no key is. Fills `found`, whose texts are copies in the current memory
// context, and answers how many there are.
int next_sealed_otherwise(const RecordTable& table, text* key_id, const Identity& after, int limit,
                          Identity* found);

}  // namespace idem::store
