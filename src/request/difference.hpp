// Where two requests differ: the reason of a mismatch, for people.
#pragma once

#include "request/fingerprint.hpp"

namespace idem::request {

enum class Change { Changed, Added, Missing };

// `path` is in the language of jsonpath; a path over kLongestPath is cut and ends with "...". The
// values point into the requests; a missing one has the type jbvNull.
struct Difference {
    text* path;
    Change change;
    JsonbValue stored;
    JsonbValue given;
};

inline constexpr int kMaxDifferences = 20;
inline constexpr int kLongestPath = 1000;  // bytes

struct Differences {
    Difference list[kMaxDifferences];
    int count;
    bool more;  // there are more differences
};

// The first differences. Parts that do not count for a fingerprint under this rule are ignored; so
// are the spelling of a number and the order of members. Can be cancelled.
Differences differences_of(Jsonb* stored, Jsonb* given, const FingerprintRule& rule);

}  // namespace idem::request
