// Shared memory of ours: reserved when the server starts if the library is preloaded, as
// pg_stat_statements does it (shmem_request_hook, ShmemInitStruct under AddinShmemInitLock); else
// in a named segment where the server has those (GetNamedDSMSegment, from 17 on), else not at all.
//
// Either way `init` runs once, before anybody else can reach the memory, and the memory stays until
// the server stops: no backend detaches, and a crash of one makes the postmaster set all of it up
// anew. The two are never mixed, because preloading is the whole server's.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// One per use, with static storage.
struct SharedMemory {
    const char* name;
    std::size_t size;
    void (*init)(void*);  // called once, for fresh memory
    void* memory;         // nullptr: not attached yet
    SharedMemory* next;
};

// Called while the library is preloaded.
void request_shared_memory(SharedMemory* which);

// nullptr if there is none.
void* attach(SharedMemory* which);

}  // namespace idem::pg
