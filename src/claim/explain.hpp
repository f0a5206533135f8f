// idem_explain: what idem_begin would answer now, and what that follows from.
#pragma once

#include "claim/begin.hpp"
#include "request/difference.hpp"

namespace idem::claim {

// Why two fingerprints that differ say nothing.
enum class Incomparable { No, Digest, MethodAndPath };

struct Explanation {
    Question question;  // settled
    Forecast forecast;
    TimestampTz given_up_at;  // by a sweeper; kNoTime: never
    bool lacks_fingerprint;   // idem_begin itself would refuse the call for the want of one
    std::optional<bool>
        same;  // whether the record is of the same request; none: nothing to compare
    Incomparable incomparable;
    request::Differences* differences;  // nullptr: not both requests are known
    const char* closed;   // why the record's values can't be opened; nullptr: they can
    const char* no_keys;  // why idem_begin could grant nothing here that has to be sealed
};

// Decides nothing and changes nothing. Errors as of begin(), but for what has to be given to begin
// and not to look, and for keys that are missing: then what is sealed is not looked at. Works on a
// standby.
Explanation explain(const Question& question);

}  // namespace idem::claim
