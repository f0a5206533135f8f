// Bytes as the server spells them: \x and two hexadecimal digits each. libpqxx has types of its own
// for them, but others in each major version.
#pragma once

#include <string>

namespace idempotency {

std::string to_bytea(const std::string& bytes);

// Throws std::invalid_argument if the text is not bytea's hexadecimal form.
std::string from_bytea(const std::string& text);

}  // namespace idempotency
