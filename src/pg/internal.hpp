// Running the extension's own SQL: as the owner of the table concerned, whatever the caller may do,
// and with a pinned search_path, whatever the caller has set. Triggers, rules and whatever else
// that owner has put on the table thus run with its rights, as a restricted operation: nothing of
// it can wait, in a deferred trigger or a cursor, for the moment in which the caller is himself
// again. An ERROR in between needs no clean-up here: the abort of the (sub)transaction restores
// user, settings and SPI.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Between begin_internal and end_internal SPI is connected and the newest snapshot is active: what
// has committed is seen, in any isolation level, and results can be detoasted, also at commit,
// where no statement's snapshot is left. Results have to be copied into `caller_context`.
struct Internal {
    Oid user;
    int security_context;
    int guc_level;
    MemoryContext caller_context;
};

// `table` is one of the schema "idempotency".
Internal begin_internal(const char* table);
void end_internal(const Internal& scope);

// How a statement finds its rows. By index: a plan made while the table was nearly empty must not
// become a sequential scan that is kept while it grows, so the planner is told to avoid one. A
// statement that reads a whole small table must not be told: its plan would look so dear that the
// server compiles it.
enum class Access { ByIndex, Whole };

// A statement of ours, prepared on first use in a backend and kept. Every name in it is qualified.
struct Statement {
    const char* sql;
    int nargs;
    const Oid* types;
    Access access;
    SPIPlanPtr plan;
};

// Returns the number of rows; those of a query are in SPI_tuptable. `nulls` as for
// SPI_execute_plan.
std::uint64_t run_read(Statement* statement, Datum* values, const char* nulls);
std::uint64_t run_write(Statement* statement, Datum* values, const char* nulls);

// A write all by itself, with a scope of its own. Returns the number of rows.
std::uint64_t write_alone(const char* table, Statement* statement, Datum* values,
                          const char* nulls);

// Sets a setting until the GUC nest level ends that the caller has opened.
void set_locally(const char* setting, const char* value);

// Takes a lock of such a table until the transaction ends.
void lock_table(const char* table, LOCKMODE mode);

// The OID of a table in the schema "idempotency"; an error if the extension is absent.
Oid table_oid(const char* name);

}  // namespace idem::pg
