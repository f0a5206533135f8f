// Running something in a subtransaction of our own, so that its error can be looked at.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// What was current before, to be so again after.
struct Subtransaction {
    MemoryContext context;
    ResourceOwner owner;
};

// The memory context stays the caller's.
Subtransaction begin_subtransaction();

// Keeps what was done.
void commit_subtransaction(const Subtransaction& outer);

// In a PG_CATCH: undoes what was done and returns the error, which is over then. The caller raises
// it again with ReThrowError, or frees it.
ErrorData* abort_subtransaction(const Subtransaction& outer);

}  // namespace idem::pg
