// Differences between server versions, newest signature first. Included by pg.hpp only.
#pragma once

#if PG_VERSION_NUM < 150000
#error "idempotency needs PostgreSQL 15 or later"
#endif

// From 18 a module tells its name and version, which pg_get_loaded_modules() shows.
#if PG_VERSION_NUM >= 180000
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "idempotency", .version = IDEM_RELEASE)
#else
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

namespace idem::pg {

// From 17 LockHeldByMe asks whether a stronger mode counts too.
inline bool lock_held_by_me(const LOCKTAG* tag, LOCKMODE mode) {
#if PG_VERSION_NUM >= 170000
    return LockHeldByMe(tag, mode, false);
#else
    return LockHeldByMe(tag, mode);
#endif
}

// From 16 one function checks every kind of object.
inline AclResult function_aclcheck(Oid function, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(ProcedureRelationId, function, role, mode);
#else
    return pg_proc_aclcheck(function, role, mode);
#endif
}

inline AclResult schema_aclcheck(Oid schema, Oid role, AclMode mode) {
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(NamespaceRelationId, schema, role, mode);
#else
    return pg_namespace_aclcheck(schema, role, mode);
#endif
}

// From 17 an extension can name what it waits for.
inline std::uint32_t new_wait_event(const char* name) {
#if PG_VERSION_NUM >= 170000
    return WaitEventExtensionNew(name);
#else
    (void)name;
    return PG_WAIT_EXTENSION;
#endif
}

}  // namespace idem::pg
