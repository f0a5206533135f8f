// Shared memory of ours: reserved when the server starts if the library is preloaded, else in a
// named segment where the server has those (from 17 on), else not at all.
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
