// Excluded fields. The input is entries, one per line, an empty line, and the place of a value, one
// step per line: the names of members, and "[*]" for an element. A binary search of the sorted
// entries must find the same as parsing each of them.
#include <algorithm>

#include "check.hpp"
#include "core/fingerprint.hpp"

namespace {

using namespace idem;
using fuzz::check;
using Words = std::vector<std::string_view>;

constexpr std::string_view kEach = "[*]";

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

// The steps of a valid path, each as a place has it.
Words steps_of(std::string_view path) {
    Words steps;
    path.remove_prefix(1);
    while (!path.empty()) {
        const bool each = path.substr(0, kEach.size()) == kEach;
        const std::size_t length =
            each ? kEach.size() : std::min(path.find_first_of(".[", 1), path.size());
        steps.push_back(each ? kEach : path.substr(1, length - 1));
        path.remove_prefix(length);
    }
    return steps;
}

// Whether one entry leaves out the value at the end of `place`.
bool names_it(std::string_view entry, const Words& place) {
    if (entry.front() == '$') return steps_of(entry) == place;
    return place.back() != kEach && lowered(entry) == lowered(place.back());
}

// How many steps lead to the first excluded value on the way; 0: none is.
std::size_t expected(const Words& entries, const Words& place) {
    for (std::size_t steps = 1; steps <= place.size(); ++steps) {
        const Words way(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(steps));
        if (std::any_of(entries.begin(), entries.end(),
                        [&](std::string_view entry) { return names_it(entry, way); }))
            return steps;
    }
    return 0;
}

std::size_t found(Words entries, const Words& place) {
    std::string room(core::room_for_names(entries.data(), entries.size()), '\0');
    const core::Excludes excludes =
        core::sort_excludes(entries.data(), entries.size(), room.data());
    core::Paths paths = core::root_paths(excludes);
    for (std::size_t step = 0; step < place.size(); ++step) {
        const bool each = place[step] == kEach;
        paths = each ? core::element_paths(paths) : core::member_paths(paths, place[step]);
        if (core::paths_exclude(paths)) return step + 1;
        if (!each && core::names_exclude(excludes, place[step])) return step + 1;
    }
    return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    const std::size_t gap = text.find("\n\n");
    if (gap == std::string_view::npos) return 0;
    const Words entries = fuzz::split(text.substr(0, gap), '\n');
    const Words place = fuzz::split(text.substr(gap + 2), '\n');
    if (!std::all_of(entries.begin(), entries.end(), core::valid_exclude)) return 0;
    // A quoted name is a JSON string, and not parsed here once more.
    if (std::any_of(entries.begin(), entries.end(),
                    [](std::string_view entry) { return entry.front() == '"'; }))
        return 0;
    const std::size_t steps = expected(entries, place);
    check(found(entries, place) == steps, "what entries name is found, and nothing else");
    const Words backwards(entries.rbegin(), entries.rend());
    check(found(backwards, place) == steps, "the order of the entries does not matter");
    return 0;
}
