// Errors that are raised in several places. None of them names the key or the principal, which may
// be secrets and would end up in the server log.
#pragma once

#include "core/fingerprint.hpp"
#include "core/key.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// Our own class: what no standard code says.
inline constexpr int kNoClaim = MAKE_SQLSTATE('I', 'D', '4', '0', '4');
inline constexpr int kClaimLost = MAKE_SQLSTATE('I', 'D', '4', '0', '9');

// Bad arguments; `what` is the argument's name.
[[noreturn]] void raise_null(const char* what);
[[noreturn]] void raise_word(const char* what, const char* given, const char* allowed);
[[noreturn]] void raise_number(const char* what, std::int64_t given, std::int64_t least,
                               std::int64_t most);

// Claims.
[[noreturn]] void raise_no_claim();
[[noreturn]] void raise_claim_overtaken();
[[noreturn]] void raise_own_claim_open();

// Surroundings. The first is an error (25000) only while a parallel plan runs, as the server's own
// parts say it; the second also (25006) in a read-only transaction or on a standby.
void require_no_parallel_mode(const char* function);
void require_writable(const char* function);

}  // namespace idem::pg
