// Building a jsonb, and two measures of one that the server gives only by writing all of it: the
// length of its text, and the digits of its numbers.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// An object under construction. Keys and values must live until the end.
struct JsonbObject {
    JsonbInState state;
};

JsonbObject begin_object();
void add_member(JsonbObject* object, JsonbValue* name, JsonbValue* value);
void add_member(JsonbObject* object, std::string_view name, std::string_view text);
void add_member(JsonbObject* object, std::string_view name, std::int64_t number);
void add_member(JsonbObject* object, std::string_view name, Jsonb* value);
void add_flag(JsonbObject* object, std::string_view name, bool value);
// In seconds, to the microsecond.
void add_seconds(JsonbObject* object, std::string_view name, std::int64_t micros);
// As to_jsonb() writes it.
void add_moment(JsonbObject* object, std::string_view name, TimestampTz moment);
Jsonb* end_object(JsonbObject* object);

// An array under construction, likewise.
struct JsonbArray {
    JsonbInState state;
};

JsonbArray begin_array();
void add_element(JsonbArray* array, Jsonb* value);
void add_element(JsonbArray* array, std::string_view text);
Jsonb* end_array(JsonbArray* array);

// The bytes of a string or of a name. The view lives as long as the jsonb.
inline std::string_view string_of(const JsonbValue& value) {
    return {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
}

// JSON text, in the server's encoding.
text* jsonb_text(Jsonb* value);

// The length in bytes of that text, without making it: a number that takes a few bytes in a jsonb
// may have a hundred thousand digits. Can be cancelled.
std::int64_t jsonb_text_size(Jsonb* value);

// A group is four decimal digits.
inline constexpr std::size_t kDigitsInGroup = 4;

struct SentNumeric {
    bytea* sent;
    std::size_t groups;
    bool finite;
    bool negative;
    std::int64_t exponent;  // of ten, at the first digit
};

// Only the digits that the number stores: not the zeros that its exponent stands for, which may be
// 131,072. The caller frees `sent`.
SentNumeric send_numeric(Numeric number);

// Writes groups * kDigitsInGroup digits.
void write_digits(const SentNumeric& number, char* out);

}  // namespace idem::pg
