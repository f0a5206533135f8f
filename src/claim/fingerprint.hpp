// The fingerprint of a request, from the server's values.
#pragma once

#include "pg/pg.hpp"

namespace idem::claim {

// SHA-256 over method, path and canonical request, without the excluded fields; each but the last
// may be nullptr. nullptr if there is nothing to take a fingerprint of.
bytea* fingerprint_of(Jsonb* request, const text* method, const text* path, ArrayType* exclude);

}  // namespace idem::claim
