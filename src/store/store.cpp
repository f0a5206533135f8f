#include "store/store.hpp"

#include "config/settings.hpp"
#include "pg/errors.hpp"
#include "store/record_table.hpp"

namespace idem::store {

const Store& records() {
    core::StoreChoice choice = config::store_choice();
    if (choice == core::StoreChoice::Sql) return sql_store;
    // Whoever is waited for here may have changed which store it is: two that differ would not see
    // each other's rows.
    LockRelationOid(record_table().table, AccessShareLock);
    const char* obstacle = obstacle_now();
    if (obstacle == nullptr) return heap_store;
    if (choice == core::StoreChoice::Heap) pg::raise_no_heap_store(obstacle);
    return sql_store;
}

}  // namespace idem::store
