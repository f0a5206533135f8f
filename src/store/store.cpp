#include "store/store.hpp"

#include "pg/errors.hpp"
#include "store/record_table.hpp"

namespace idem::store {

const Store& store(core::StoreChoice choice) {
    if (choice == core::StoreChoice::Sql) return sql_store;
    const char* obstacle = obstacle_now();
    if (obstacle == nullptr) return heap_store;
    if (choice == core::StoreChoice::Heap) pg::raise_no_heap_store(obstacle);
    return sql_store;
}

}  // namespace idem::store
