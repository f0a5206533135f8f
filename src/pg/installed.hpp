// The extension as installed in this database: its tables, cached facts about them, and the version
// of the SQL objects.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// The name of the extension, of its library, and of the schema of its tables.
inline constexpr const char* kExtension = "idempotency";

// The extension is absent (42P01).
[[noreturn]] void raise_not_installed();

// The OID of one of its tables. If there is none: InvalidOid, or an error.
Oid find_table(const char* name);
Oid table_oid(const char* name);

// The extension's only function of this name. Users may have made functions of the same name, in
// the same schema, with other arguments.
Oid own_function(Oid schema, const char* name);

// After a wait: another session has dropped the extension, or a shard has gone (42P01).
[[noreturn]] void raise_dropped();

// Raises this error if the running function was dropped during a wait, even if the extension was
// created again, with a new function of this name.
void check_called(Oid function);

// The row type of the running function's result, from the server's type cache. The user releases
// it. The same error.
TupleDesc row_of_called(Oid function, int columns);

// An error if the type of a row has another number of columns: it is of another release.
void check_row_type(TupleDesc row, int columns);

// Locks such a table until the transaction ends, and returns its OID.
Oid lock_table(const char* name, LOCKMODE mode);

// ---- facts about a table ----

// Facts learned by a look at a table, valid until the table changes. One per use, with static
// storage. The user sets `table`, `look`, `is_part` and `opens`; this file sets the rest.
struct Watched {
    const char* table;
    void (*look)(Oid table);  // learns it; may raise an error, and is called again then
    bool (*is_part)(Oid relation) = nullptr;  // also relevant: changes of these relations
    bool opens = false;                       // the look opens the table, which is locked for it
    Oid oid = InvalidOid;                     // of the table, at the last look
    bool is_current = false;                  // the facts of that look still hold
    bool changed = false;                     // since it began
    Watched* next = nullptr;
};

// Called once, when the library is loaded.
void watch(Watched* watched);

// Looks, even if the facts are current. A change that arrives meanwhile leaves it not current:
// parts of the facts may be from before the change.
void look_at(Watched* watched);

// Processes the messages of other sessions' commits, and looks if the table has changed.
void refresh(Watched* watched);

// ---- the version ----

// Different commands install library and SQL objects, so one may be updated before the other. An
// error if their versions differ. Looks once, and again after DDL on the table given to
// watch_version(); otherwise it tests one variable.
void check_version();

// Called once, when the library is loaded, with the table that each upgrade script touches.
void watch_version(const char* table);

}  // namespace idem::pg
