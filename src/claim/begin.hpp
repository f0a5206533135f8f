// idem_begin and idem_once: who asks for a key, and what they are told.
#pragma once

#include "claim/question.hpp"

namespace idem::claim {

// Answers with one row of the outcome table. With Execute, the transaction holds the claim.
Answer begin(const Question& question);

// idem_once: claims and completes without a response. True the first time, false after.
bool once(const Question& question);

}  // namespace idem::claim
