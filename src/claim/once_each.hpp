// idem_once_each: many keys of one scope and principal in one pass.
#pragma once

#include "claim/question.hpp"

namespace idem::claim {

// Answers for each key what idem_once would. The keys are different, and in the order of their
// bytes, which is the same in every session: so two calls never wait for each other in turn.
// `is_new` has room for as many flags. The question's own key is the first of them.
void once_each(const Question& question, const store::Identity* ids, int count, bool* is_new);

}  // namespace idem::claim
