// Fields that a fingerprint leaves out, because they differ between the sendings of one request.
#pragma once

#include <cstddef>
#include <string_view>

namespace idem::core {

// Entries, by example:
//   trace_id     the member at every depth, ASCII letter case ignored
//   $.a.b        the member b of the member a of the request, letter case counts
//   $.a[*].b     the member b of each element of the array a
//   $.a[*]       every element of the array a, which stays as []
//   $[*][*].b    likewise, where the request itself is an array of arrays
// What begins with '$' is a path. In the names of a path '.', '[', ']', '*', '"' and control
// characters are refused: such an entry is meant for a richer language, and would match nothing.
bool valid_exclude(std::string_view entry) noexcept;

// Entries in order, so that one look-up finds what they say of a member.
struct Excludes {
    const std::string_view* names;  // up to `paths`: the plain ones
    const std::string_view* paths;  // up to `end`: without their '$'
    const std::string_view* end;
};

// Brings `entries`, each of which is a valid_exclude(), into order where they are.
Excludes sort_excludes(std::string_view* entries, std::size_t count) noexcept;

// Whether a plain name leaves the member out, wherever it is.
bool names_exclude(const Excludes& excludes, std::string_view member) noexcept;

// The paths that lead to one value of the request, or through it: their first `at` bytes do.
struct Paths {
    const std::string_view* begin;
    const std::string_view* end;
    std::size_t at;
};

// Those through the request itself.
Paths root_paths(const Excludes& excludes) noexcept;
// From an object on to a member of it; from an array on to each of its elements.
Paths member_paths(const Paths& object, std::string_view member) noexcept;
Paths element_paths(const Paths& array) noexcept;

// Whether one of them ends here: the value is left out.
bool paths_exclude(const Paths& paths) noexcept;

}  // namespace idem::core
