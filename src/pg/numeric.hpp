// The digits of a number, as numeric_send() tells them: a numeric's own layout is private to the
// server.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// A group is four decimal digits.
inline constexpr std::size_t kDigitsInGroup = 4;

struct SentNumeric {
    bytea* sent;
    std::size_t groups;
    bool finite;
    bool negative;
    std::int64_t exponent;  // of ten, at the first digit
};

// Only the digits that the number has: the zeros that its exponent stands for may be 131,072, and
// are not made. The caller frees `sent`.
SentNumeric send_numeric(Numeric number);

// Writes groups * kDigitsInGroup digits.
void write_digits(const SentNumeric& number, char* out);

}  // namespace idem::pg
