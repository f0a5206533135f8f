// The stand-in for a body in a history: long enough to tell any two apart, short enough to keep.
#pragma once

#include <cstdint>
#include <string>

namespace idem::chaos {

inline std::string digest(const std::string& bytes) {
    if (bytes.empty()) return {};
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
    return bytes.substr(0, 24) + "#" + std::to_string(bytes.size()) + "#" + std::to_string(hash);
}

}  // namespace idem::chaos
