// The fingerprint of a request, from the server's values.
#pragma once

#include "core/fingerprint.hpp"

#include "pg/pg.hpp"

namespace idem::request {

// Which fields of a request count.
struct FingerprintRule {
    ArrayType* fields;   // these, and what is in them; nullptr: all
    ArrayType* exclude;  // but for these; nullptr: none
};

// The entries of an argument of this name, to be looked up; nullptr: none. `purpose` is what the
// fields are to: "exclude" or "count". Refuses what can't be read.
core::Excludes fields_of(ArrayType* fields, const char* what, const char* purpose);

// Of one value of a request: the paths that exclude it or something in it, and those that count it
// or something in it, unless it counts as a whole.
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

// `fields` are those that count, where not everything does.
inline Place member_place(const core::Excludes& fields, const Place& object,
                          std::string_view member) {
    Place place{core::member_paths(object.excluded, member), {}, object.counts};
    if (place.counts) return place;
    place.counted = core::member_paths(object.counted, member);
    place.counts = core::names_exclude(fields, member) || core::paths_exclude(place.counted);
    return place;
}

// SHA-256 over method, path and canonical request, as far as it counts; each may be nullptr.
// nullptr if there is nothing to take a fingerprint of. `empty`, if it is asked for, says whether
// nothing of the request counts.
bytea* fingerprint_of(Jsonb* request, const text* method, const text* path,
                      const FingerprintRule& rule, bool* empty = nullptr);

// SHA-256 likewise over a method, a path, and as the request a string with the digest in
// hexadecimal digits.
bytea* fingerprint_of_digest(const bytea* digest, const text* method, const text* path);

text* in_hex(const bytea* bytes);

}  // namespace idem::request
