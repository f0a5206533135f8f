// Where a server listens: "127.0.0.1:8080"; port 0 lets the system choose.
#pragma once

#include <string>

namespace http {

struct Address {
    std::string host;
    int port = 0;
};

// Throws std::invalid_argument.
Address parse_address(const std::string& text);

}  // namespace http
