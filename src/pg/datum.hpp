// Conversions between the server's values and plain ones.
#pragma once

#include "core/key.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// "Not set" for times that may be absent; no finite timestamp has this value.
inline constexpr TimestampTz kNoTime = DT_NOBEGIN;

// The bytes of a text or bytea. The view lives as long as the datum.
inline std::string_view bytes_of(const void* varlena) {
    return {VARDATA_ANY(varlena), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(varlena))};
}

inline text* make_text(std::string_view value) {
    return cstring_to_text_with_len(value.data(), static_cast<int>(value.size()));
}

// Microseconds between 1970, the Unix epoch, and 2000, the server's.
inline constexpr std::int64_t kUnixEpochShift =
    (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

// Text of the server's encoding as UTF-8; the same bytes where it is UTF-8 already.
std::string_view as_utf8(std::string_view bytes);

core::Name name_of(const text* value);

// A copy in the current memory context; null stays null.
void* copy_varlena(const void* value);

// The bytes of a text as a bytea: same layout, other type.
inline bytea* as_bytea(text* value) {
    return value;
}

Interval* make_interval(std::int64_t micros);
// In days and the rest, as a user would write it.
Interval* interval_in_days(std::int64_t micros);

// Saturates where the interval is too long; the range checks refuse the result.
std::int64_t micros_of(const Interval* span);

// now + micros, limited to valid timestamps: a span may come from a row that was written by hand.
inline TimestampTz after(TimestampTz now, std::int64_t micros) {
    return core::later(now, micros, {MIN_TIMESTAMP, END_TIMESTAMP - 1});
}

inline constexpr int kMaxListItems = 1000;

// Elements of a text array. A null element, or more than kMaxListItems, is an error that names
// `what`.
struct TextList {
    std::string_view* items;
    std::size_t count;
};
TextList text_list(ArrayType* array, const char* what, const char* hint_if_too_many = nullptr);

}  // namespace idem::pg
