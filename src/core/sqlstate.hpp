// Which party an SQLSTATE blames.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace idem::core {

// Whether an error of an operation is its request's own fault, so that another try would meet it
// again: bad data, a violated constraint, or the operation's own error about the request. Any other
// error comes from the surroundings and may have passed by the next try: a deploy, a lost right, a
// limit, a conflict, a fault in the operation, a referenced row.
bool is_fault_of_request(std::string_view sqlstate) noexcept;

// Whether an error of an access to the records asks for an operator: a full disk, a damaged page, a
// constraint that a user added. Not errors that say "again" (a conflict, a lock timeout) or "stop"
// (a cancel, a shutdown, a read-only transaction), and no message below an error.
bool is_store_error(std::string_view sqlstate) noexcept;

// Whether a policy may name this entry as final: a class or a whole SQLSTATE. Not allowed:
// conflicts, resources, cancels, the system and internal errors, which answer no request.
bool may_be_final(std::string_view entry) noexcept;

// Whether an SQLSTATE is one of the entries, or in one of their classes.
bool is_listed(std::string_view sqlstate, const std::string_view* entries,
               std::size_t count) noexcept;

// An HTTP status of a refusal, from a number as JSON writes it; nullopt: not one.
inline constexpr int kFirstRefusal = 400;
inline constexpr int kLastRefusal = 599;
std::optional<int> refusal_status(std::string_view number) noexcept;

}  // namespace idem::core
