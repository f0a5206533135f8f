// The store that this session uses.
#pragma once

#include "config/settings.hpp"
#include "store/store.hpp"

namespace idem::claim {

inline const store::Store& records() {
    return store::store(config::store_choice());
}

}  // namespace idem::claim
