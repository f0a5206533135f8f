// idem_begin: who asks for a key, and what they are told.
#pragma once

#include "claim/answer.hpp"

namespace idem::claim {

// Arguments as the caller gave them, checked one by one; nullptr and nullopt are "not given".
// Durations are microseconds.
struct BeginCall {
    const char* function;  // for error messages, such as "idem_begin()"
    store::Identity id;    // key may be nullptr
    Jsonb* request;
    bytea* fingerprint;
    text* operation;  // what is to be run; nullptr: the caller's own affair
    std::optional<std::int64_t> ttl;
    std::optional<std::int64_t> lease;
    std::optional<std::int64_t> wait;
    std::optional<TimestampTz> first_sent;
    bool wait_for_ever;    // wins over `wait`
    bool without_request;  // a message has no payload to compare: no policy can ask for one
    bool hold;
    bool same_statement;  // the work is part of the calling statement, and sees with its snapshot
    text* holder;
};

// Answers with one row of the outcome table. With Execute, the transaction holds the claim.
Answer begin(const BeginCall& call);

// idem_once: claims and completes without a response. True the first time, false after.
bool once(const BeginCall& call);

}  // namespace idem::claim
