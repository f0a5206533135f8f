// idem_execute: claim, operation and result in one call.
#pragma once

#include "claim/question.hpp"
#include "claim/result.hpp"
#include "claim/state.hpp"

namespace idem::claim {

// What is to be run exactly once, and then puts into `response`, which is empty, what it has
// answered. Both get the argument.
struct Operation {
    void (*run)(void* argument, Jsonb* request);
    void (*answer)(void* argument, Response* response);
    void* argument;
};

// Runs the operation if the key is granted, and ends the claim: with its response, or as failed if
// its error is final. Any other error goes on, and the claim goes with it: one of the extension
// itself, and one that comes once the operation has returned. The answer has the record as it is
// then.
Answer execute(const Question& question, const Operation& operation);

}  // namespace idem::claim
