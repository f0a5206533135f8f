// The fingerprint of a request, from the server's values.
#pragma once

#include "core/fingerprint.hpp"

#include "pg/pg.hpp"

namespace idem::request {

// The fields of a request that count.
struct FingerprintRule {
    ArrayType* fields;   // these and their contents; nullptr: all
    ArrayType* exclude;  // except these; nullptr: none
};

// The entries of an argument of this name, ready for look-ups; nullptr: none. `purpose` is
// "exclude" or "count". Refuses invalid entries.
core::Excludes fields_of(ArrayType* fields, const char* what, const char* purpose);

// Of one value of a request: the paths that exclude it or a part of it, and those that count it or
// a part of it, unless all of it counts.
struct Place {
    core::Paths excluded;
    core::Paths counted;
    bool counts;
};

inline Place element_place(const Place& array) {
    Place place{core::element_paths(array.excluded), {}, array.counts};
    if (place.counts) return place;
    place.counted = core::element_paths(array.counted);
    place.counts = core::paths_exclude(place.counted);
    return place;
}

// `fields` are those that count, where not all do.
inline Place member_place(const core::Excludes& fields, const Place& object,
                          std::string_view member) {
    Place place{core::member_paths(object.excluded, member), {}, object.counts};
    if (place.counts) return place;
    place.counted = core::member_paths(object.counted, member);
    place.counts = core::names_exclude(fields, member) || core::paths_exclude(place.counted);
    return place;
}

// SHA-256 over method, path and canonical request, as far as it counts; each may be nullptr.
// nullptr if there is no input for a fingerprint. `empty`, unless nullptr, tells whether no part of
// the request counts.
bytea* fingerprint_of(Jsonb* request, const text* method, const text* path,
                      const FingerprintRule& rule, bool* empty = nullptr);

// SHA-256 likewise over a method, a path, and as the request a string with the digest in
// hexadecimal digits.
bytea* fingerprint_of_digest(const bytea* digest, const text* method, const text* path);

text* in_hex(const bytea* bytes);

}  // namespace idem::request
