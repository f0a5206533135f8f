// Which way to the table of records the server takes: the setting idempotency.store.
#pragma once

namespace idem::core {

enum class StoreChoice {
    Auto,  // the heap store where the table allows it, else SQL
    Sql,
    Heap,  // an error where the table does not allow it
};

}  // namespace idem::core
