// What a caller asks of a key, and what the protocol answers. The question: the arguments of
// idem_begin, idem_once and idem_execute, and what follows from them, the policy of the scope and
// the settings.
#pragma once

#include "core/decision.hpp"

#include "request/fingerprint.hpp"
#include "store/record.hpp"

namespace idem::claim {

// The first part is as the caller gave it, each argument checked by itself; nullptr and nullopt are
// "not given". Durations are microseconds.
struct Question {
    const char* function;  // for error messages, such as "idem_begin()"
    store::Identity id;    // once settled it has a key
    Jsonb* request;        // what the fingerprint is taken of
    text* method;          // and of these two
    text* path;
    ArrayType* exclude;               // fields that do not count, beside the policy's
    bytea* fingerprint;               // wins over all of these
    text* operation;                  // what is to be run; nullptr: the caller's own affair
    std::optional<std::int64_t> ttl;  // these three are never nullopt once settled
    std::optional<std::int64_t> lease;
    std::optional<std::int64_t> wait;  // kForEver: without limit
    std::optional<TimestampTz> first_sent;
    std::optional<std::int64_t> derive;  // a missing key is made of the request, for so long
    bool without_request;  // a message has no payload to compare: no policy can ask for one
    bool hold;
    bool same_statement;  // the work is part of the calling statement, and sees with its snapshot
    bool transactional;  // the claim has to end in its transaction; once settled, the policy counts
    text* holder;

    // From here on settle() fills in.
    Jsonb* hashed;                // what the fingerprint was taken of; nullptr: the caller gave it
    std::int32_t fingerprint_of;  // store::FingerprintOf
    bool nothing_counts;          // of its fields
    bool derived_key;             // the key was made of the request
    ArrayType* counted;           // of which fields; nullptr: all
    ArrayType* excluded;          // and without which fields; nullptr: none
    Jsonb* stored_request;        // what the record keeps of the request; nullptr: nothing
    std::int64_t retention;
    std::int32_t body_limit;  // of the result, in bytes
    bool omit_large_body;
    bool encrypt;
    bool keep_history;
    core::Terms terms;  // `now` is set for each look

    // The snapshot with which the work will see the database, if that is taken already: then only
    // what it knows of may have come before. nullptr: the work gets a newer one.
    Snapshot fixed;
    TimestampTz fixed_since;  // it was not taken earlier than that
};

struct Answer {
    std::optional<core::Decision> decision;  // none when only asked for information
    bool has_record;                         // false: nothing but the identity is known
    bool gave_way;                           // its wait for a lease held others up, and was ended
    store::Record record;
};

// Argument, else policy, else setting. Refuses what the policy forbids, before anything is granted.
Question settle(Question question);

// False if record and caller are known to speak of different operations or requests: their
// fingerprints differ, by the fields that are excluded now and by those that were excluded when the
// record's was taken.
bool same_request(const store::Record& record, const Question& question);

// The rule by which the record's fingerprint was taken, as far as that is known.
request::FingerprintRule rule_of(const store::Record& record, const Question& question);

}  // namespace idem::claim
