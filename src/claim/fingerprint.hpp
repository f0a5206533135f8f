// The fingerprint of a request, from the server's values.
#pragma once

#include "core/fingerprint.hpp"

#include "pg/pg.hpp"

namespace idem::claim {

// Which fields of a request count.
struct FingerprintRule {
    ArrayType* fields;   // these, and what is in them; nullptr: all
    ArrayType* exclude;  // but for these; nullptr: none
};

// The entries of an argument of this name, to be looked up; nullptr: none. `purpose` is what the
// fields are to: "exclude" or "count". Refuses what can't be read.
core::Excludes fields_of(ArrayType* fields, const char* what, const char* purpose);

// SHA-256 over method, path and canonical request, as far as it counts; each may be nullptr.
// nullptr if there is nothing to take a fingerprint of. `empty`, if it is asked for, says whether
// nothing of the request counts.
bytea* fingerprint_of(Jsonb* request, const text* method, const text* path,
                      const FingerprintRule& rule, bool* empty = nullptr);

// SHA-256 likewise over a method, a path, and as the request a string with the digest in
// hexadecimal digits.
bytea* fingerprint_of_digest(const bytea* digest, const text* method, const text* path);

text* in_hex(const bytea* bytes);

}  // namespace idem::claim
