// What the server shows of us to everybody who looks: the install script's views look for it, and
// so do users' queries.
#pragma once

#include <cstdint>

namespace idem::core {

// Classes of advisory locks (objsubid in pg_locks): of claims, and of the workers themselves. Those
// that users take have 1 and 2.
inline constexpr std::uint16_t kClaimLockClass = 18756;
inline constexpr std::uint16_t kWorkerLockClass = 18758;

// Types of background workers (backend_type in pg_stat_activity).
inline constexpr const char* kLauncherType = "idempotency launcher";
inline constexpr const char* kSweeperType = "idempotency sweeper";

}  // namespace idem::core
