// Telling the statistics and the log what was decided.
#pragma once

#include "claim/answer.hpp"

namespace idem::claim {

// An answer of idem_begin, after `waited` microseconds of waiting (0: it did not wait).
void account_for(const Answer& answer, std::int64_t waited);

// A result that was recorded.
void account_for_result(const store::Record& record);

}  // namespace idem::claim
