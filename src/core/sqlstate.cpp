#include "core/sqlstate.hpp"

#include <algorithm>

namespace idem::core {
namespace {

// Data exceptions, integrity constraints, and SQL/PSM's user-defined exceptions.
constexpr std::string_view kClassesOfRequest[] = {"22", "23", "45"};
constexpr std::string_view kRaiseException = "P0001";

// Restrict and foreign key violations: a referenced row may commit a moment later, a referencing
// row may disappear.
constexpr std::string_view kOfOtherRows[] = {"23001", "23503"};

// The server's own that begin like a user's: configuration files, foreign data, PL/pgSQL, internal
// errors; and ours, which report another key to an operation.
constexpr std::string_view kReservedClasses[] = {"F0", "HV", "P0", "XX", "ID"};

// Of transactions, resources, operators, the system and internal errors.
constexpr std::string_view kNeverFinal[] = {"40", "53", "57", "58", "XX"};

// Success, warnings, no data; transaction states, conflicts, operators.
constexpr std::string_view kNoTrouble[] = {"00", "01", "02", "25", "40", "57"};
constexpr std::string_view kLockNotAvailable = "55P03";

constexpr std::size_t kClassLength = 2;
constexpr std::size_t kStateLength = 5;

bool is_state_character(char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

template <std::size_t N>
bool is_one_of(std::string_view word, const std::string_view (&words)[N]) noexcept {
    return std::find(words, words + N, word) != words + N;
}

// Classes that only the author of a function gives a meaning. The standard has 0 to 4; the server
// adds to 5 and 7.
bool is_users_class(std::string_view name) noexcept {
    const char first = name.front();
    const bool letter = first >= 'A' && first <= 'Z';
    const bool free_digit = first == '6' || first == '8' || first == '9';
    return (letter || free_digit) && !is_one_of(name, kReservedClasses);
}

}  // namespace

bool is_fault_of_request(std::string_view sqlstate) noexcept {
    if (sqlstate.size() != kStateLength) return false;
    const std::string_view name = sqlstate.substr(0, kClassLength);
    if (is_one_of(sqlstate, kOfOtherRows)) return false;
    return is_one_of(name, kClassesOfRequest) || is_users_class(name) ||
           sqlstate == kRaiseException;
}

bool is_store_error(std::string_view sqlstate) noexcept {
    return !is_one_of(sqlstate.substr(0, kClassLength), kNoTrouble) &&
           sqlstate != kLockNotAvailable;
}

bool may_be_final(std::string_view entry) noexcept {
    return (entry.size() == kClassLength || entry.size() == kStateLength) &&
           std::all_of(entry.begin(), entry.end(), is_state_character) &&
           !is_one_of(entry.substr(0, kClassLength), kNeverFinal);
}

bool is_listed(std::string_view sqlstate, const std::string_view* entries,
               std::size_t count) noexcept {
    return std::any_of(entries, entries + count, [sqlstate](std::string_view entry) {
        return entry == sqlstate || entry == sqlstate.substr(0, kClassLength);
    });
}

std::optional<int> refusal_status(std::string_view number) noexcept {
    constexpr std::size_t kDigits = 3;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (number.size() != kDigits || !std::all_of(number.begin(), number.end(), is_digit)) return {};
    int status = 0;
    for (const char digit : number) status = status * 10 + (digit - '0');
    if (status < kFirstRefusal || status > kLastRefusal) return {};
    return status;
}

}  // namespace idem::core
