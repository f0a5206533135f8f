// idem_execute: claim, operation and result in one call.
#pragma once

#include "claim/question.hpp"
#include "claim/result.hpp"

namespace idem::claim {

// What is to be run exactly once; it puts into `response`, which is empty, what it answers.
using Operation = void (*)(void* argument, Jsonb* request, Response* response);

// Runs the operation if the key is granted, and ends the claim: with its response, or as failed if
// its error is final. Any other error goes on, and the claim goes with it. The answer has the
// record as it is then.
Answer execute(const Question& question, Operation operation, void* argument);

}  // namespace idem::claim
