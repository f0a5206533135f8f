// The fingerprint of a request, from the server's values.
#pragma once

#include "core/fingerprint.hpp"

#include "pg/pg.hpp"

namespace idem::claim {

// The fields that an argument of this name leaves out; nullptr: none. Refuses what can't be read.
core::Excludes excludes_of(ArrayType* exclude, const char* what);

// SHA-256 over method, path and canonical request, without the excluded fields; each may be
// nullptr. nullptr if there is nothing to take a fingerprint of.
bytea* fingerprint_of(Jsonb* request, const text* method, const text* path, ArrayType* exclude);

// SHA-256 likewise over a method, a path, and as the request a string with the digest in
// hexadecimal digits.
bytea* fingerprint_of_digest(const bytea* digest, const text* method, const text* path);

text* in_hex(const bytea* bytes);

}  // namespace idem::claim
