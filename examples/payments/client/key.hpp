// The Idempotency-Key field, seen from the client.
#pragma once

#include <string>

namespace payments::client {

// The key as an RFC 8941 String, which is how the field carries it. Throws std::invalid_argument if
// the key has other characters than ASCII's printable ones: no field of HTTP can carry those.
std::string key_field(const std::string& key);

// A random UUID (version 4), for a request that has no name of its own.
std::string new_key();

}  // namespace payments::client
