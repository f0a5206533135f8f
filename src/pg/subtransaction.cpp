#include "pg/subtransaction.hpp"

namespace idem::pg {

namespace {

void restore(const Subtransaction& outer) {
    MemoryContextSwitchTo(outer.context);
    CurrentResourceOwner = outer.owner;
}

}  // namespace

Subtransaction begin_subtransaction() {
    Subtransaction outer{CurrentMemoryContext, CurrentResourceOwner};
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(outer.context);
    return outer;
}

void commit_subtransaction(const Subtransaction& outer) {
    ReleaseCurrentSubTransaction();
    restore(outer);
}

ErrorData* abort_subtransaction(const Subtransaction& outer) {
    MemoryContextSwitchTo(outer.context);
    ErrorData* error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    restore(outer);
    return error;
}

}  // namespace idem::pg
