// Shared memory for a library that was not preloaded: servers from 17 on have named segments.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// The segment of this name, made and initialised by whoever comes first; nullptr where the server
// has no such thing.
void* named_segment(const char* name, std::size_t size, void (*init)(void*));

}  // namespace idem::pg
