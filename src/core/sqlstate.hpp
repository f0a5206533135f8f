// What an SQLSTATE says about whose fault an error is.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace idem::core {

// Whether an error of an operation is its request's own fault, so that another try of the same
// request would meet it again: bad data, a violated constraint, or what the operation itself says
// about the request. Everything else is of the surroundings and may have passed by the next try: a
// deploy, a lost right, a limit, a conflict, a fault in the operation, a row that is referred to.
bool is_fault_of_request(std::string_view sqlstate) noexcept;

// Whether somebody has to look after the server, or the tables, if an access to the records ends
// so: a full disk, a damaged page, a constraint that somebody has added. Not what says "again" (a
// conflict, a lock that was not to be had) or "stop" (a cancel, a shutdown, a transaction that may
// not write), and no message below an error.
bool is_store_error(std::string_view sqlstate) noexcept;

// Whether an entry names what a policy may call final: a class, or a whole SQLSTATE, but none of
// conflicts, resources, cancels, the system and faults within, which are nobody's answer.
bool may_be_final(std::string_view entry) noexcept;

// Whether an SQLSTATE is one of the entries, or of their classes.
bool is_listed(std::string_view sqlstate, const std::string_view* entries,
               std::size_t count) noexcept;

// HTTP's statuses of refusals, from a number as JSON writes it; nullopt: it is none of them.
inline constexpr int kFirstRefusal = 400;
inline constexpr int kLastRefusal = 599;
std::optional<int> refusal_status(std::string_view number) noexcept;

}  // namespace idem::core
