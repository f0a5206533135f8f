#include "key.hpp"

#include <cstdint>
#include <iomanip>
#include <random>
#include <sstream>
#include <stdexcept>

namespace payments::client {

std::string key_field(const std::string& key) {
    std::string field = "\"";
    for (const char c : key) {
        if (c < ' ' || c > '~') throw std::invalid_argument("key is not printable ASCII");
        if (c == '"' || c == '\\') field += '\\';
        field += c;
    }
    return field + '"';
}

std::string new_key() {
    std::random_device device;
    const auto bits = [&device](std::uint32_t clear, std::uint32_t set) {
        return (device() & ~clear) | set;
    };
    std::ostringstream digits;
    digits << std::hex << std::setfill('0');
    for (const std::uint32_t part :
         {bits(0, 0), bits(0xf000, 0x4000), bits(0xc0000000, 0x80000000), bits(0, 0)}) {
        digits << std::setw(8) << part;
    }
    std::string uuid = digits.str();
    for (const std::size_t at : {8, 13, 18, 23}) uuid.insert(at, "-");
    return uuid;
}

}  // namespace payments::client
