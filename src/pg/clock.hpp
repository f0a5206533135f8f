// A clock for spans: nobody can set it, so it neither jumps nor steps back.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Microseconds since some moment; comparable within this process alone.
inline std::int64_t monotonic_micros() {
    instr_time now;
    INSTR_TIME_SET_CURRENT(now);
    return static_cast<std::int64_t>(INSTR_TIME_GET_MICROSEC(now));
}

}  // namespace idem::pg
