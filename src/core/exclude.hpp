// Fields that a fingerprint leaves out, because they differ between the sendings of one request.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/json.hpp"

namespace idem::core {

// Entries, by example:
//   trace_id     the member at every depth, ASCII letter case ignored
//   $.a.b        the member b of the member a of the request, letter case counts
//   $.a[*].b     the member b of each element of the array a
//   $.a[*]       every element of the array a, which stays as []
//   $[*][*].b    likewise, where the request itself is an array of arrays
// What begins with '$' is a path. In the names of a path '.', '[', ']', '*', '"' and control
// characters are refused: such an entry is meant for a richer language, and would match nothing.

// Removes what the entries name, each of which is a valid_exclude(). What is not there is no error.
void remove_excluded(JsonValue& value, const std::string_view* entries, std::size_t count) noexcept;

}  // namespace idem::core
