// Keys: joining parts can be undone, so no two lists of parts give one key; and the rules of a key
// agree with the C library's view of the same text.
#include <algorithm>

#include "check.hpp"
#include "core/key.hpp"

namespace {

using namespace idem;
using core::NameFault;
using fuzz::check;
using Parts = std::vector<std::string_view>;

std::string joined(const Parts& parts) {
    // A canary behind the end reveals a size that is too small, the comparison one that is too
    // large.
    const std::size_t size = core::joined_size(parts.data(), parts.size());
    std::vector<char> out(size + 1, '\x7e');
    core::join_parts(parts.data(), parts.size(), out.data());
    check(out.back() == '\x7e', "joining writes no more than joined_size()");
    return {out.data(), size};
}

// The inverse of joining, written from its description.
std::vector<std::string> taken_apart(const std::string& key) {
    std::vector<std::string> parts(1);
    for (std::size_t i = 0; i < key.size(); ++i) {
        if (key[i] == ':') {
            parts.emplace_back();
        } else {
            if (key[i] == '\\') ++i;
            check(i < key.size(), "an escape is followed by what it escapes");
            parts.back() += key[i];
        }
    }
    return parts;
}

void check_joining(const Parts& parts) {
    const auto back = taken_apart(joined(parts));
    check(std::equal(back.begin(), back.end(), parts.begin(), parts.end()),
          "a joined key can be taken apart again");
}

bool is_control(char32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

void check_rules(std::string_view text) {
    const auto characters = fuzz::decoded(text);
    if (!characters) return;
    const core::Name name{text, characters->size(), true};
    const bool control = std::any_of(characters->begin(), characters->end(), is_control);
    const bool blank = characters->find_first_not_of(U' ') == std::u32string::npos;
    const bool good = characters->size() <= core::kMaxNameChars && !control;
    check((core::check_label(name) == NameFault::None) == (good && (text.empty() || !blank)),
          "a label is short, has no control character, and is empty or not blank");
    check((core::check_key(name) == NameFault::None) == (good && !blank),
          "a key is a label that is not empty");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    check_joining(fuzz::split(text, '\n'));
    check_rules(text);
    return 0;
}
