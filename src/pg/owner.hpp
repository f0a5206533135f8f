// The extension's own SQL.
//
// A statement runs as the owner of the table concerned, whatever rights the caller has, and with a
// pinned search_path, whatever the caller has set. User and snapshot are those of a foreign key
// check (ri_PerformCheck). It uses SetUserIdAndSecContext to the owner, without forced row
// security. After CommandCounterIncrement it takes the latest snapshot, in any isolation level. It
// runs SPI_execute_snapshot.
//
// As in REFRESH MATERIALIZED VIEW and VACUUM, which run code of a table's owner, this is a
// security-restricted operation with its own GUC nest level. Triggers, rules and functions of
// indexes get that owner's rights, and none of their changes to the session outlast it. The server
// refuses deferred triggers, cursors WITH HOLD and temporary tables there: later they would run or
// be read with another user's rights.
//
// An ERROR in between needs no clean-up here: the abort of the (sub)transaction restores user,
// security context, settings, snapshots and SPI.
#pragma once

#include <type_traits>

#include "pg/installed.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// Between begin_as_owner and end_as_owner SPI is connected and the newest snapshot is active.
// Committed rows are visible, in any isolation level. Results can be detoasted, also at commit,
// where no statement's snapshot is left. Copy results into `caller_context`.
struct AsOwner {
    Oid user;
    int security_context;
    int guc_level;
    MemoryContext caller_context;
};

// SPI as the current user, until SPI_finish.
void connect_spi();

// `table` is one of the extension's.
AsOwner begin_as_owner(const char* table);
void end_as_owner(const AsOwner& frame);

// How a statement finds its rows. ByIndex: the plan is kept while the table grows, so a plan from a
// nearly empty table must not be a sequential scan. The planner must avoid one. Whole: a
// statement that reads a whole small table must not have that setting. Until version 17 the planner
// adds disable_cost, which is above jit_above_cost: each backend would JIT-compile the plan.
enum class Access { ByIndex, Whole };

// A statement of ours, prepared on first use in a backend and kept. It names tables with their
// schema. With the pinned search_path its functions, operators and types are those of pg_catalog.
struct Statement {
    const char* sql;
    int nargs;
    const Oid* types;
    Access access;
    SPIPlanPtr plan;
};

// Returns the number of rows; those of a query are in SPI_tuptable. `nulls` is as for
// SPI_execute_plan.
std::uint64_t run_read(Statement* statement, Datum* values, const char* nulls);
std::uint64_t run_write(Statement* statement, Datum* values, const char* nulls);

// A row of the query that was just run. Columns count from 1. Texts and bytes are copies in the
// current memory context.
class FoundRow {
  public:
    FoundRow(HeapTuple row, TupleDesc shape) : row_(row), shape_(shape) {}

    Datum value(int column) const {
        bool null;
        return SPI_getbinval(row_, shape_, column, &null);
    }
    bool is_null(int column) const {
        bool null;
        (void)SPI_getbinval(row_, shape_, column, &null);
        return null;
    }
    std::int64_t number(int column) const { return DatumGetInt64(value(column)); }
    // Reads bytea too, which has the same layout; nullptr: null.
    text* text_at(int column) const {
        return is_null(column) ? nullptr : DatumGetTextPCopy(value(column));
    }

  private:
    HeapTuple row_;
    TupleDesc shape_;
};

// The first row of the query that was just run, which has one.
inline FoundRow first_row() {
    return {SPI_tuptable->vals[0], SPI_tuptable->tupdesc};
}

// Calls take(FoundRow) with each row of the query that was just run, in the caller's memory
// context.
template <typename Take>
void take_rows(const AsOwner& frame, std::uint64_t rows, Take take) {
    SPITupleTable* found = SPI_tuptable;
    MemoryContext spi_context = MemoryContextSwitchTo(frame.caller_context);
    for (std::uint64_t i = 0; i < rows; i++) take(FoundRow(found->vals[i], found->tupdesc));
    MemoryContextSwitchTo(spi_context);
}

// The result of make(FoundRow) for each row, in the caller's memory context.
template <typename Make>
auto* made_of_rows(const AsOwner& frame, std::uint64_t rows, Make make) {
    using Made = std::invoke_result_t<Make, FoundRow>;
    auto* made = static_cast<Made*>(
        MemoryContextAlloc(frame.caller_context, sizeof(Made) * (static_cast<Size>(rows) + 1)));
    Made* next = made;
    take_rows(frame, rows, [&](const FoundRow& row) { *next++ = make(row); });
    return made;
}

// A table with its schema, as a statement of ours spells it. An error (42P01) if it has gone.
const char* qualified_name(Oid table);

// Frees the plan of a statement that will not run again.
void drop_plan(Statement* statement);

// A single write with a frame of its own. Returns the number of rows.
std::uint64_t write_alone(const char* table, Statement* statement, Datum* values,
                          const char* nulls);

// Changes a setting until the end of the GUC nest level that the caller has opened.
void set_locally(const char* setting, const char* value);

}  // namespace idem::pg
