// idem_explain: what idem_begin would answer now, and what that follows from.
#pragma once

#include "claim/begin.hpp"
#include "request/difference.hpp"

namespace idem::claim {

// Why two fingerprints that differ say nothing.
enum class Incomparable { No, Digest, MethodAndPath };

struct Explanation {
    Settled question;
    Forecast forecast{};
    TimestampTz given_up_at = pg::kNoTime;  // by a sweeper; kNoTime: never
    TimestampTz due_at = pg::kNoTime;       // for a worker; kNoTime: never
    bool lacks_fingerprint = false;  // idem_begin itself would refuse the call for the want of one
    // Whether the record is of the same request; none: nothing to compare.
    std::optional<bool> same{};
    Incomparable incomparable = Incomparable::No;
    request::Differences* differences = nullptr;  // nullptr: not both requests are known
    const char* closed = nullptr;   // why the record's values can't be opened; nullptr: they can
    const char* no_keys = nullptr;  // why idem_begin could grant nothing here that has to be sealed
};

// Decides nothing and changes nothing. The question is `without_request`. Errors as of begin(), but
// not for keys that are missing: then what is sealed is not looked at. Works on a standby.
Explanation explain(const Question& question);

}  // namespace idem::claim
