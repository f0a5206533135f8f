// Master keys: the lines of a key file, and the memory that keeps them.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/seal.hpp"

namespace idem::core {

// Limits of a key file: its size, and the number of its keys.
inline constexpr std::size_t kMostKeys = 32;
inline constexpr std::size_t kLongestKeyId = 63;
inline constexpr std::size_t kLargestKeyFile = 16384;

// A fault of a key file, and its line; 0: the fault has no line.
struct KeyFault {
    const char* detail;  // nullptr: nothing
    std::size_t line;
};

// The keys of a file, in pages of their own: neither swapped out nor part of a core dump where the
// system allows it.
class KeyRing;

// Each line is
//
//   id base64-of-32-bytes [current]
//
// with blanks or tabs between. A line may also be empty, or a comment that begins with '#'. An id
// has up to 63 letters, digits and ".", "_", "-". One line is marked current. Returns nullptr if
// the file is invalid; the caller wipes the text.
KeyRing* read_key_ring(std::string_view text, KeyFault* fault) noexcept;

// Overwrites the keys and frees the memory. nullptr is allowed.
void wipe_key_ring(KeyRing* ring) noexcept;

// The id of the current key, which seals.
std::string_view current_key_id(const KeyRing& ring) noexcept;

// The ids in the order of the file; empty past the last one.
std::string_view key_id_at(const KeyRing& ring, std::size_t number) noexcept;

// The check value of a key, computed at the first question; empty: no such id, or OpenSSL refused.
// It points into the ring.
std::string_view key_check(KeyRing& ring, std::string_view id) noexcept;

enum class RecordKey { Derived, NoSuchId, Refused };

// The key of a record. It is kept until another record's is asked for: a record's values are mostly
// opened one after the other. `key` points into the ring.
RecordKey record_key(KeyRing& ring, std::string_view id, std::string_view salt,
                     const Key** key) noexcept;

}  // namespace idem::core
