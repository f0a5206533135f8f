#include "core/exclude.hpp"

#include <algorithm>

namespace idem::core {
namespace {

constexpr std::string_view kEach = "[*]";

bool is_path(std::string_view entry) {
    return !entry.empty() && entry.front() == '$';
}

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

bool is_control(char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

bool has_control(std::string_view text) {
    return std::any_of(text.begin(), text.end(), is_control);
}

// The first step of a path without its '$': '.name' or '[*]'.
std::string_view first_step(std::string_view path) {
    if (starts_with(path, kEach)) return kEach;
    return path.substr(0, path.find_first_of(".[", 1));
}

bool valid_step(std::string_view step) {
    if (step == kEach) return true;
    return step.front() == '.' && step.size() > 1 &&
           step.find_first_of("[]*\"") == std::string_view::npos;
}

bool valid_path(std::string_view path) {
    if (path.empty()) return false;
    while (!path.empty()) {
        const std::string_view step = first_step(path);
        if (!valid_step(step)) return false;
        path.remove_prefix(step.size());
    }
    return true;
}

unsigned char ascii_lower(char c) {
    return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

// By length first, which tells most names apart.
bool name_less(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return a.size() < b.size();
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return ascii_lower(x) < ascii_lower(y);
    });
}

// By steps: what ends a name comes before whatever else may follow it.
bool path_less(std::string_view a, std::string_view b) {
    const auto rank = [](char c) {
        return c == '.' ? 0 : c == '[' ? 1 : 2 + static_cast<unsigned char>(c);
    };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [rank](char x, char y) { return rank(x) < rank(y); });
}

// A step without its dot; that to each element comes after every name. None if the path ends.
struct Step {
    bool named;
    std::string_view name;
};

Step next_step(std::string_view path, std::size_t at) {
    const std::string_view step = first_step(path.substr(at));
    if (step == kEach) return {false, {}};
    return {true, step.substr(std::min<std::size_t>(1, step.size()))};
}

bool step_less(const Step& a, const Step& b) {
    return a.named != b.named ? a.named : a.name < b.name;
}

Paths next_paths(const Paths& paths, const Step& step, std::size_t length) {
    if (paths.begin == paths.end) return paths;
    const std::size_t at = paths.at;
    const auto* begin = std::lower_bound(
        paths.begin, paths.end, step,
        [at](std::string_view path, const Step& s) { return step_less(next_step(path, at), s); });
    const auto* end = std::upper_bound(
        begin, paths.end, step,
        [at](const Step& s, std::string_view path) { return step_less(s, next_step(path, at)); });
    return {begin, end, at + length};
}

}  // namespace

bool valid_exclude(std::string_view entry) noexcept {
    if (entry.empty() || has_control(entry)) return false;
    return !is_path(entry) || valid_path(entry.substr(1));
}

Excludes sort_excludes(std::string_view* entries, std::size_t count) noexcept {
    std::string_view* end = entries + count;
    std::string_view* paths =
        std::partition(entries, end, [](std::string_view entry) { return !is_path(entry); });
    std::for_each(paths, end, [](std::string_view& path) { path.remove_prefix(1); });
    std::sort(entries, paths, name_less);
    std::sort(paths, end, path_less);
    return {entries, paths, end};
}

bool names_exclude(const Excludes& excludes, std::string_view member) noexcept {
    return std::binary_search(excludes.names, excludes.paths, member, name_less);
}

Paths root_paths(const Excludes& excludes) noexcept {
    return {excludes.paths, excludes.end, 0};
}

Paths member_paths(const Paths& object, std::string_view member) noexcept {
    return next_paths(object, {true, member}, 1 + member.size());
}

Paths element_paths(const Paths& array) noexcept {
    return next_paths(array, {false, {}}, kEach.size());
}

bool paths_exclude(const Paths& paths) noexcept {
    return paths.begin != paths.end && paths.begin->size() == paths.at;
}

}  // namespace idem::core
