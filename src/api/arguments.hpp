// Reads and checks SQL arguments. A bad one is refused by its name, before anything is granted.
#pragma once

#include "core/time.hpp"

#include "pg/datum.hpp"
#include "store/record.hpp"

namespace idem::api {

// Reasons to refuse any argument; `what` is its name.
[[noreturn]] void raise_null(const char* what);
// The words that raise_word() lists, one after the other.
void append_word(StringInfo list, std::string_view word);
[[noreturn]] void raise_word(const char* what, const char* given, const char* allowed);
[[noreturn]] void raise_number(const char* what, std::int64_t given, std::int64_t least,
                               std::int64_t most);

// An error unless the server calls the function for a trigger.
void check_is_trigger(FunctionCallInfo fcinfo);

// nullptr for null.
text* text_or_null(FunctionCallInfo fcinfo, int arg);
bytea* bytea_or_null(FunctionCallInfo fcinfo, int arg);
Jsonb* jsonb_or_null(FunctionCallInfo fcinfo, int arg);

text* required_text(FunctionCallInfo fcinfo, int arg, const char* name);
// A text that names something: not null, not empty, up to 255 characters, no control characters.
text* required_name(FunctionCallInfo fcinfo, int arg, const char* name);

// A scope or a principal: not null, up to 255 characters, no control characters.
text* label(FunctionCallInfo fcinfo, int arg, const char* name);

bool bool_or(FunctionCallInfo fcinfo, int arg, bool otherwise);
std::optional<std::int64_t> bigint_or_none(FunctionCallInfo fcinfo, int arg);

// Microseconds.
std::optional<std::int64_t> span_or_none(FunctionCallInfo fcinfo, int arg, const char* name,
                                         core::SpanRange range);
void check_span(std::int64_t micros, const char* what, core::SpanRange range);

std::optional<TimestampTz> moment_or_none(FunctionCallInfo fcinfo, int arg, const char* name);

// The reason of a decision; nullptr: none given. Up to 1000 characters in one line.
text* reason_or_null(FunctionCallInfo fcinfo, int arg);

// Of a scope and a principal that were checked. The key may be nullptr.
store::Identity checked_identity(text* scope, text* principal, text* key);

// The key may be null only where the SQL function allows it.
store::Identity identity(FunctionCallInfo fcinfo, int key, int scope, int principal);
store::Identity identity_or_generated_key(FunctionCallInfo fcinfo, int key, int scope,
                                          int principal);

bytea* fingerprint_or_null(FunctionCallInfo fcinfo, int arg);

// 200 to 599: an interim status (1xx) is no response.
std::optional<std::int32_t> status_code_or_none(FunctionCallInfo fcinfo, int arg);

// An object from header names to strings or arrays of strings. Each name occurs once, without line
// breaks. A JSON null means the same as SQL's null: no headers.
Jsonb* headers_or_null(FunctionCallInfo fcinfo, int arg);
Jsonb* checked_headers(Jsonb* headers);
void check_status_code(std::int32_t code);

}  // namespace idem::api
