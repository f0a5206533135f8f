// Excluded fields. The input is entries, one a line, an empty line, and a request. What is removed
// was named, nothing grows, and neither the order of the entries nor doing it twice matters.
#include <algorithm>

#include "check.hpp"
#include "core/canonical.hpp"
#include "core/exclude.hpp"
#include "core/fingerprint.hpp"

namespace {

using namespace idem;
using core::FingerprintFault;
using core::JsonValue;
using fuzz::check;
using Entries = std::vector<std::string_view>;

std::string form_of(const JsonValue& value) {
    std::string out;
    core::append_canonical(value, out);
    return out;
}

// The canonical form of what is left of `request`.
std::string left_of(std::string_view request, const Entries& entries, JsonValue& value) {
    check(core::parse_json(request, nullptr, value) == FingerprintFault::None, "it is JSON again");
    core::remove_excluded(value, entries.data(), entries.size());
    return form_of(value);
}

std::size_t count_values(const JsonValue& value) {
    std::size_t count = 1;
    if (const auto* members = std::get_if<core::JsonObject>(&value.data)) {
        for (const core::JsonMember& member : *members) count += count_values(member.value);
    } else if (const auto* items = std::get_if<core::JsonArray>(&value.data)) {
        for (const JsonValue& item : *items) count += count_values(item);
    }
    return count;
}

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

// Whether a member of that name is anywhere, letter case aside.
bool has_member(const JsonValue& value, const std::string& name) {
    if (const auto* members = std::get_if<core::JsonObject>(&value.data)) {
        return std::any_of(members->begin(), members->end(), [&](const core::JsonMember& m) {
            return lowered(m.name) == name || has_member(m.value, name);
        });
    }
    const auto* items = std::get_if<core::JsonArray>(&value.data);
    return items != nullptr && std::any_of(items->begin(), items->end(),
                                           [&](const JsonValue& v) { return has_member(v, name); });
}

void check_removal(std::string_view request, const Entries& entries) {
    JsonValue whole, left, other;
    const std::string before = left_of(request, {}, whole);
    const std::string after = left_of(request, entries, left);
    check(after.size() <= before.size(), "excluding never makes a request longer");
    check(count_values(left) <= count_values(whole), "excluding adds nothing");
    if (count_values(left) == count_values(whole))
        check(after == before, "excluding changes nothing else");
    for (const std::string_view entry : entries) {
        if (entry.front() != '$')
            check(!has_member(left, lowered(entry)), "a plain name is gone at every depth");
    }
    check(left_of(after, entries, other) == after, "excluding twice is excluding once");
    const Entries backwards(entries.rbegin(), entries.rend());
    check(left_of(request, backwards, other) == after, "the order of the entries does not matter");
}

void check_bad_entry(std::string_view request, const Entries& entries, std::size_t bad) {
    core::FingerprintInput input;
    input.request = request;
    input.exclude = entries.data();
    input.exclude_count = entries.size();
    const auto result = core::fingerprint(input);
    check(result.fault == FingerprintFault::BadExclude && result.bad_exclude == bad,
          "the first bad entry is named");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    const std::size_t gap = text.find("\n\n");
    if (gap == std::string_view::npos) return 0;
    const Entries entries = fuzz::split(text.substr(0, gap), '\n');
    const std::string_view request = text.substr(gap + 2);
    const auto bad = std::find_if_not(entries.begin(), entries.end(), core::valid_exclude);
    if (bad != entries.end()) {
        check_bad_entry(request, entries, static_cast<std::size_t>(bad - entries.begin()));
        return 0;
    }
    JsonValue value;
    if (core::parse_json(request, nullptr, value) != FingerprintFault::None) return 0;
    if (form_of(value).empty()) return 0;
    std::string form;
    if (core::append_canonical(value, form) == FingerprintFault::None)
        check_removal(request, entries);
    return 0;
}
