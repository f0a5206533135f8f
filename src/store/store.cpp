#include "store/store.hpp"

namespace idem::store {

const Store& store() {
    return sql_store;
}

}  // namespace idem::store
