// What is installed in this database: tables of the extension, what is kept of them as long as they
// stay as they are, and the version of the SQL objects.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Of the extension, its library, and the schema of its tables.
inline constexpr const char* kExtension = "idempotency";

// The extension is absent (42P01).
[[noreturn]] void raise_not_installed();

// The OID of one of its tables; where there is none, InvalidOid or an error.
Oid find_table(const char* name);
Oid table_oid(const char* name);

// The extension's function of this name, of which it has one. Users may have made others that are
// called alike, in the same schema, with other arguments.
Oid own_function(Oid schema, const char* name);

// After a wait: somebody has dropped the extension, or a shard has gone (42P01).
[[noreturn]] void raise_dropped();

// After a wait: this error if the function that is being called has been dropped meanwhile,
// also if the extension was created again, with another one of this name.
void check_called(Oid function);

// The row type that the called function returns, as the server's type cache has it. Its user
// releases it. The same error.
TupleDesc row_of_called(Oid function);

// Takes a lock of such a table until the transaction ends, and returns its OID.
Oid lock_table(const char* name, LOCKMODE mode);

// ---- what is kept of a table ----

// Something that was learned by a look at a table, and holds until the table changes. One per use,
// with static storage; `table`, `look`, `is_part` and `opens` are given, the rest is
// ours.
struct Watched {
    const char* table;
    void (*look)(Oid table);  // learns it; may raise an error, and is called again then
    bool (*is_part)(Oid relation) = nullptr;  // whose changes are the table's as well
    bool opens = false;                       // the look opens the table, which is locked for it
    Oid oid = InvalidOid;                     // of the table, as of the last look
    bool is_current = false;                  // what that look has learned still holds
    bool changed = false;                     // since it began
    Watched* next = nullptr;
};

// Called once, when the library is loaded.
void watch(Watched* watched);

// Looks, whatever is known already. A change that arrives meanwhile leaves it not current: parts of
// what was learned may be as of before.
void look_at(Watched* watched);

// Hears of what others have committed, and looks if anything of the table has changed.
void refresh(Watched* watched);

// ---- the version ----

// Library and SQL objects are installed by different commands, so one may be updated and the other
// not yet: an error if they are of different versions. Looks once, and again after DDL has touched
// the table that watch_version() was given; else it is one test of a variable.
void check_version();

// Called once, when the library is loaded, with the table that each upgrade script touches.
void watch_version(const char* table);

}  // namespace idem::pg
