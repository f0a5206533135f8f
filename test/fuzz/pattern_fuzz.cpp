// Scope patterns. The input is a pattern, a newline, and a scope.
#include "check.hpp"
#include "core/key.hpp"
#include "core/pattern.hpp"

namespace {

using namespace idem;
using core::pattern_rank;
using fuzz::check;

bool fits(std::string_view pattern, std::string_view scope) {
    if (pattern.empty() || pattern.back() != '*') return pattern == scope;
    const std::string prefix(pattern.substr(0, pattern.size() - 1));
    return std::string(scope).rfind(prefix, 0) == 0;
}

// From '*' to the scope itself, each pattern outranks the one before.
void check_ladder(const std::string& scope) {
    std::size_t last = 0;
    for (std::size_t length = 0; length <= scope.size(); ++length) {
        const std::size_t rank = pattern_rank(scope.substr(0, length) + '*', scope);
        check(rank > last, "a longer prefix outranks a shorter one");
        last = rank;
    }
    if (!scope.empty() && scope.back() == '*') return;  // no exact pattern can name it
    check(pattern_rank(scope, scope) > last, "an exact pattern outranks every prefix");
}

void check_words(std::string_view pattern) {
    const auto fault = core::check_pattern(pattern, pattern.size(), false);
    const auto label = core::check_label({pattern, pattern.size(), false});
    const auto star = pattern.find('*');
    const bool inner = star != std::string_view::npos && star != pattern.size() - 1;
    const bool bad_label =
        label == core::NameFault::TooLong || label == core::NameFault::ControlCharacter;
    check((fault == core::PatternFault::None) == (!inner && !bad_label),
          "a pattern is a label whose only star is its end");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view scope = fuzz::as_text(data, size);
    const std::string_view pattern = fuzz::cut(scope, '\n');
    check((pattern_rank(pattern, scope) > 0) == fits(pattern, scope), "a rank says that it fits");
    check_words(pattern);
    check_ladder(std::string(scope.substr(0, 64)));
    return 0;
}
