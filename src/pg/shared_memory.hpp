// Shared memory of the extension. A preloaded library reserves it when the server starts, as
// pg_stat_statements does (shmem_request_hook, ShmemInitStruct under AddinShmemInitLock). Otherwise
// it is a named segment on servers that have those (GetNamedDSMSegment, from 17); else there is
// none.
//
// Either way `init` runs once, before any other backend can reach the memory. The memory stays
// until the server stops: no backend detaches, and after a crash of one the postmaster sets it up
// anew. The two ways are never mixed, because preloading is a setting of the whole server.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// One per use, with static storage.
struct SharedMemory {
    const char* name;
    std::size_t (*size)();  // asked when the server's settings are known
    void (*init)(void*);    // called once, for fresh memory
    void* memory;           // nullptr: not attached yet
    SharedMemory* next;
};

// Called while the library is preloaded.
void request_shared_memory(SharedMemory* which);

// nullptr: there is none.
void* attach(SharedMemory* which);

}  // namespace idem::pg
