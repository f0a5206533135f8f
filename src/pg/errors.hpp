// Errors that are raised in several places. None of them names the key or the principal, which may
// be secrets and would end up in the server log.
#pragma once

#include "core/duration.hpp"
#include "core/fingerprint.hpp"
#include "core/key.hpp"
#include "core/pattern.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// Our own class: what no standard code says.
inline constexpr int kNoClaim = MAKE_SQLSTATE('I', 'D', '4', '0', '4');
inline constexpr int kClaimLost = MAKE_SQLSTATE('I', 'D', '4', '0', '9');

// Bad arguments; `what` is the argument's name.
[[noreturn]] void raise_null(const char* what);
[[noreturn]] void raise_out_of_range(const char* what);
[[noreturn]] void raise_pattern(core::PatternFault fault, std::size_t chars);
[[noreturn]] void raise_exclude(std::size_t index);
[[noreturn]] void raise_too_deep();
[[noreturn]] void raise_no_canonical_form();
[[noreturn]] void raise_digest();
[[noreturn]] void raise_request_too_large(std::size_t bytes);
[[noreturn]] void raise_word(const char* what, const char* given, const char* allowed);
[[noreturn]] void raise_number(const char* what, std::int64_t given, std::int64_t least,
                               std::int64_t most);
[[noreturn]] void raise_retention_below_ttl();
[[noreturn]] void raise_retry_base_above_cap();
[[noreturn]] void raise_drop_headers();
[[noreturn]] void raise_final_errors();
[[noreturn]] void raise_too_large(const char* what, std::int64_t bytes, std::int64_t limit,
                                  const char* hint);
[[noreturn]] void raise_required(const char* what, const char* hint);

// Claims.
[[noreturn]] void raise_no_claim();
[[noreturn]] void raise_claim_lost();
[[noreturn]] void raise_claim_ended();
[[noreturn]] void raise_token_required();
[[noreturn]] void raise_claim_overtaken();
[[noreturn]] void raise_still_deciding();
[[noreturn]] void raise_retry_pending();
[[noreturn]] void raise_own_claim_open();
[[noreturn]] void raise_needs_operator(const char* status);
[[noreturn]] void raise_final(const char* status);
[[noreturn]] void raise_lease_lives();
[[noreturn]] void raise_being_written();
[[noreturn]] void raise_unseen_attempt();
[[noreturn]] void raise_table_changed();
[[noreturn]] void raise_own_operation();

// Surroundings. The first is an error (25000) only while a parallel plan runs, as the server's own
// parts say it; the second also (25006) in a read-only transaction or on a standby.
void require_no_parallel_mode(const char* function);
void require_writable(const char* function);
[[noreturn]] void raise_role(const char* role);
[[noreturn]] void raise_missing_role(const char* role);
[[noreturn]] void raise_policy_unusable(const char* column);
[[noreturn]] void raise_policy_table(const char* column);

}  // namespace idem::pg
