// One look at a key: find its record and let the outcome table decide.
#pragma once

#include "claim/answer.hpp"
#include "claim/asking.hpp"

namespace idem::claim {

struct Judgement {
    Answer answer;
    TransactionId writer;  // another transaction that is deciding about the key now, if one is seen
    TimestampTz now;       // of the look
};

Judgement judge(const Asking& asking);

// False if record and caller are known to speak of different operations or requests: their
// fingerprints differ, by the fields that are excluded now and by those that were excluded when the
// record's was taken.
bool same_request(const store::Record& record, const Asking& asking);

}  // namespace idem::claim
