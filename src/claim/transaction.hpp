// Hooks into the server's transactions.
#pragma once

namespace idem::claim {

// Called once, when the library is loaded.
void watch_transactions();

// Has our callback called before those that others have registered until now: what postgres_fdw
// commits on other servers in its own is to come after our write, which may fail. The server calls
// the callbacks in the order of the last registration first.
void come_first_at_commit();

}  // namespace idem::claim
