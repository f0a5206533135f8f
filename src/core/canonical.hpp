// The canonical form of JSON: RFC 8785, except that no digit of a number is ever lost.
#pragma once

#include <string>
#include <string_view>

#include "core/json.hpp"

namespace idem::core {

// Appends the canonical form of what parse_json() read. Answers None, OutOfMemory, or BadJson for a
// number whose exponent does not fit into 64 bits.
FingerprintFault append_canonical(const JsonValue& value, std::string& out) noexcept;

}  // namespace idem::core
