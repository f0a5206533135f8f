// What a caller asks of a key, and what follows from that by the policy of the scope and the
// settings.
#pragma once

#include "core/decision.hpp"

#include "config/policy.hpp"
#include "request/fingerprint.hpp"
#include "store/record.hpp"

namespace idem::claim {

// The arguments of idem_begin, idem_once and idem_execute, each checked by itself; nullptr and
// nullopt are "not given". Durations are microseconds.
struct Question {
    const char* function;  // for error messages, such as "idem_begin()"
    store::Identity id;    // may have no key
    Jsonb* request;        // what the fingerprint is taken of
    text* method;          // and of these two
    text* path;
    ArrayType* exclude;  // fields that do not count, beside the policy's
    bytea* fingerprint;  // wins over all of these
    text* operation;     // what is to be run; nullptr: the caller's own affair
    std::optional<std::int64_t> ttl;
    std::optional<std::int64_t> lease;
    std::optional<std::int64_t> wait;  // kForEver: without limit
    std::optional<TimestampTz> first_sent;
    std::optional<std::int64_t> derive;  // a missing key is made of the request, for so long
    bool without_request;                // there is none to compare: no policy can ask for one
    bool hold;
    bool same_statement;  // the work is part of the calling statement, and sees with its snapshot
    bool transactional;   // the claim has to end in its transaction
    text* holder;
};

// A question with everything that its answer depends on. Lives no longer than the question.
struct Settled {
    const Question& asked;
    config::ScopePolicy policy;
    store::Identity id{};             // has a key
    bytea* fingerprint = nullptr;     // nullptr: there is nothing to take one of
    std::int32_t fingerprint_of = 0;  // store::FingerprintOf
    ArrayType* excluded = nullptr;    // the fields that it was taken without; nullptr: none
    std::int64_t ttl = 0;
    std::int64_t lease = 0;
    std::int64_t wait = 0;
    std::int64_t retention = 0;
    core::Terms terms{};  // `now` is set for each look

    // The snapshot with which the work will see the database, if that is taken already: then only
    // what it knows of may have come before. nullptr: the work gets a newer one.
    Snapshot fixed = nullptr;
    TimestampTz fixed_since = 0;  // it was not taken earlier than that
};

// Argument, else policy, else setting. Refuses what the policy forbids, before anything is granted.
Settled settle(const Question& question);

// False if record and caller are known to speak of different operations or requests: their
// fingerprints differ, by the fields that are excluded now and by those that were excluded when the
// record's was taken.
bool same_request(const store::Record& record, const Settled& question);

// The rule by which the record's fingerprint was taken, as far as that is known.
request::FingerprintRule rule_of(const store::Record& record, const Question& question);

}  // namespace idem::claim
