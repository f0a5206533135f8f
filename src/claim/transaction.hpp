// Hooks into the server's transactions.
#pragma once

namespace idem::claim {

// Called once, when the library is loaded.
void watch_transactions();

}  // namespace idem::claim
