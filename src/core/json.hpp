// JSON text (RFC 8259, UTF-8) as a tree, as far as the canonical form needs it.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/fingerprint.hpp"

namespace idem::core {

struct JsonValue;
struct JsonMember;

enum class JsonLiteral : unsigned char { Null, False, True };

// A number as it was written: a view into the parsed text, so that no digit is lost.
struct JsonNumber {
    std::string_view text;
};

using JsonArray = std::vector<JsonValue>;
// Each name once, in the order of utf16_less().
using JsonObject = std::vector<JsonMember>;

struct JsonValue {
    std::variant<JsonLiteral, JsonNumber, std::string, JsonArray, JsonObject> data;
};

struct JsonMember {
    std::string name;
    JsonValue value;
};

// Reads `text` into `value`, which keeps views into `text`. Of members with the same name the last
// one wins, as in jsonb. A lone surrogate is refused: it has no UTF-8 form. `interrupted` may be
// null. Answers None, BadJson, TooDeep, Interrupted or OutOfMemory.
FingerprintFault parse_json(std::string_view text, bool (*interrupted)(),
                            JsonValue& value) noexcept;

// Whether `a` sorts before `b` by UTF-16 code units, the order RFC 8785 asks for. Both are
// well-formed UTF-8.
bool utf16_less(std::string_view a, std::string_view b) noexcept;

}  // namespace idem::core
