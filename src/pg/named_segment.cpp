#include "pg/named_segment.hpp"

#if PG_VERSION_NUM >= 170000
extern "C" {
#include "storage/dsm_registry.h"
}
#endif

namespace idem::pg {

void* named_segment(const char* name, std::size_t size, void (*init)(void*)) {
#if PG_VERSION_NUM >= 170000
    bool found;
    return GetNamedDSMSegment(name, size, init, &found);
#else
    (void)name;
    (void)size;
    (void)init;
    return nullptr;
#endif
}

}  // namespace idem::pg
