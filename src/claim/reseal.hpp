// Records and attempts are sealed anew with the current key, so that older keys can go.
#pragma once

#include "store/sealed_rows.hpp"

namespace idem::claim {

enum class Resealed {
    Done,
    Nothing,   // the record has gone, or somebody has sealed it anew
    Busy,      // somebody is deciding about the key
    Unopened,  // its key is not there, or the row is damaged
};

// Waits for nobody. The lock of the key is kept until the transaction ends only where the row would
// not guard the key by itself.
Resealed reseal_record(const store::Identity& id);

// Of attempts, which the transaction has locked: how many could be opened, and were replaced.
int reseal_attempts(const store::SealedTable& table, store::Record* attempts, int count);

}  // namespace idem::claim
