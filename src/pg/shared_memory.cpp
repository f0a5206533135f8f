#include "pg/shared_memory.hpp"

namespace idem::pg {

namespace {

SharedMemory* requested;
shmem_request_hook_type previous_request_hook;
shmem_startup_hook_type previous_startup_hook;

void request() {
    if (previous_request_hook != nullptr) previous_request_hook();
    for (SharedMemory* each = requested; each != nullptr; each = each->next)
        RequestAddinShmemSpace(MAXALIGN(each->size()));
}

void startup() {
    if (previous_startup_hook != nullptr) previous_startup_hook();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    for (SharedMemory* each = requested; each != nullptr; each = each->next) {
        bool found;
        each->memory = ShmemInitStruct(each->name, each->size(), &found);
        if (!found) each->init(each->memory);
    }
    LWLockRelease(AddinShmemInitLock);
}

}  // namespace

// The hooks are set with the first request, as pg_stat_statements sets its own.
void request_shared_memory(SharedMemory* which) {
    if (requested == nullptr) {
        previous_request_hook = shmem_request_hook;
        shmem_request_hook = request;
        previous_startup_hook = shmem_startup_hook;
        shmem_startup_hook = startup;
    }
    which->next = requested;
    requested = which;
}

void* attach(SharedMemory* which) {
    if (which->memory == nullptr)
        which->memory = named_segment(which->name, which->size(), which->init);
    return which->memory;
}

}  // namespace idem::pg
