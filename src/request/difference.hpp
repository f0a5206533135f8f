// Where two requests differ, for whoever wonders why a key is a mismatch.
#pragma once

#include "request/fingerprint.hpp"

namespace idem::request {

enum class Change { Changed, Added, Missing };

// `path` reads in the language of jsonpath; what is longer than kLongestPath is cut and ends with
// "...". The values point into the requests; one that is not there has the type jbvNull.
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
    bool more;  // there are others
};

// The first ones. What does not count for a fingerprint by this rule is as if it were not there,
// and how a number is written or members are ordered makes no difference. Can be cancelled.
Differences differences_of(Jsonb* stored, Jsonb* given, const FingerprintRule& rule);

}  // namespace idem::request
