// Names of ours that the server shows to every user: the install script's views and users' queries
// look for them.
#pragma once

#include <cstdint>

namespace idem::core {

// Classes of advisory locks (objsubid in pg_locks): of claims, and of the workers themselves.
// Users' own locks have 1 and 2.
inline constexpr std::uint16_t kClaimLockClass = 18756;
inline constexpr std::uint16_t kWorkerLockClass = 18758;

// Types of background workers (backend_type in pg_stat_activity).
inline constexpr const char* kLauncherType = "idempotency launcher";
inline constexpr const char* kSweeperType = "idempotency sweeper";

}  // namespace idem::core
