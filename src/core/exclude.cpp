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

// Cuts the first step off a path without its '$': '.name' or '[*]'.
std::string_view cut_step(std::string_view& path) {
    const std::size_t length = starts_with(path, kEach)
                                   ? kEach.size()
                                   : std::min(path.find_first_of(".[", 1), path.size());
    const std::string_view step = path.substr(0, length);
    path.remove_prefix(length);
    return step;
}

bool valid_step(std::string_view step) {
    if (step == kEach) return true;
    return step.front() == '.' && step.size() > 1 &&
           step.find_first_of("[]*\"") == std::string_view::npos;
}

bool valid_path(std::string_view path) {
    if (path.empty()) return false;
    while (!path.empty()) {
        if (!valid_step(cut_step(path))) return false;
    }
    return true;
}

void remove_path(JsonValue& value, std::string_view path);

void remove_from_each(JsonArray& items, std::string_view rest) {
    if (rest.empty()) return items.clear();
    for (JsonValue& item : items) remove_path(item, rest);
}

void remove_from_member(JsonObject& members, std::string_view name, std::string_view rest) {
    const auto found = std::find_if(members.begin(), members.end(),
                                    [name](const JsonMember& m) { return m.name == name; });
    if (found == members.end()) return;
    if (rest.empty()) {
        members.erase(found);
    } else {
        remove_path(found->value, rest);
    }
}

// `path` is not empty, and valid.
void remove_path(JsonValue& value, std::string_view path) {
    const std::string_view step = cut_step(path);
    if (step == kEach) {
        if (auto* items = std::get_if<JsonArray>(&value.data)) remove_from_each(*items, path);
    } else {
        if (auto* members = std::get_if<JsonObject>(&value.data))
            remove_from_member(*members, step.substr(1), path);
    }
}

char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool same_letters(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

class PlainNames {
  public:
    PlainNames(const std::string_view* entries, std::size_t count)
        : begin_(entries), end_(entries + count) {}

    bool any() const { return !std::all_of(begin_, end_, is_path); }

    void remove_from(JsonValue& value) const {
        if (auto* members = std::get_if<JsonObject>(&value.data)) {
            const auto excluded = [this](const JsonMember& m) { return contains(m.name); };
            members->erase(std::remove_if(members->begin(), members->end(), excluded),
                           members->end());
            for (JsonMember& member : *members) remove_from(member.value);
        } else if (auto* items = std::get_if<JsonArray>(&value.data)) {
            for (JsonValue& item : *items) remove_from(item);
        }
    }

  private:
    bool contains(std::string_view name) const {
        return std::any_of(begin_, end_, [name](std::string_view entry) {
            return !is_path(entry) && same_letters(entry, name);
        });
    }

    const std::string_view* begin_;
    const std::string_view* end_;
};

}  // namespace

bool valid_exclude(std::string_view entry) noexcept {
    if (entry.empty() || has_control(entry)) return false;
    return !is_path(entry) || valid_path(entry.substr(1));
}

void remove_excluded(JsonValue& value, const std::string_view* entries,
                     std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (is_path(entries[i])) remove_path(value, entries[i].substr(1));
    }
    const PlainNames names(entries, count);
    if (names.any()) names.remove_from(value);
}

}  // namespace idem::core
