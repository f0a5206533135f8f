// The Idempotency-Key field on the client's side.
#pragma once

#include <string>

namespace payments::client {

// The key as an RFC 8941 String, the form of the field. Throws std::invalid_argument if the key has
// characters other than printable ASCII: an HTTP field cannot carry those.
std::string key_field(const std::string& key);

// A random UUID (version 4), for a request without a name of its own.
std::string new_key();

}  // namespace payments::client
