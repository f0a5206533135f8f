#include "address.hpp"

#include <charconv>
#include <stdexcept>

namespace http {

Address parse_address(const std::string& text) {
    const auto colon = text.rfind(':');
    Address address{text.substr(0, colon), -1};
    if (colon != std::string::npos) {
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data() + colon + 1, end, address.port);
        if (parsed.ptr != end) address.port = -1;
    }
    if (address.host.empty() || address.port < 0 || address.port > 65535) {
        throw std::invalid_argument("not HOST:PORT: " + text);
    }
    return address;
}

}  // namespace http
