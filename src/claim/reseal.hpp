// Records and attempts are sealed anew with the current key, so that older keys can go.
#pragma once

#include "store/sealed_rows.hpp"

namespace idem::claim {

struct Resealed {
    std::int64_t done;
    std::int64_t unopened;  // the key is not there, or the row is damaged
};

// Of rows that store::next_sealed_otherwise() has found. Never waits: a record that another
// transaction is deciding about, that has gone or that was sealed anew counts as neither. The lock
// of a record's key is kept until the transaction ends only where the row would not guard the key
// by itself. Changes `rows`.
Resealed reseal_rows(const store::SealedTable& table, store::Record* rows, int count);

}  // namespace idem::claim
