// The extension's own SQL.
//
// A statement runs as the owner of the table concerned, whatever the caller may do, and with a
// pinned search_path, whatever the caller has set. User and snapshot are those of a check of a
// foreign key (ri_PerformCheck: SetUserIdAndSecContext to the owner without forced row security;
// after CommandCounterIncrement the latest snapshot, in any isolation level), run by
// SPI_execute_snapshot. As REFRESH MATERIALIZED VIEW and VACUUM do it for code of a table's owner,
// all this is a security-restricted operation with a GUC nest level of its own: triggers, rules and
// functions of indexes get that owner's rights, and nothing of theirs can outlast it. The server
// refuses a deferred trigger, a cursor WITH HOLD or a temporary table there, which would run or be
// read with the rights of whoever comes next.
//
// An ERROR in between needs no clean-up here: the abort of the (sub)transaction restores user,
// security context, settings, snapshots and SPI.
#pragma once

#include <type_traits>

#include "pg/installed.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// Between begin_as_owner and end_as_owner SPI is connected and the newest snapshot is active: what
// has committed is seen, in any isolation level, and results can be detoasted, also at commit,
// where no statement's snapshot is left. Results have to be copied into `caller_context`.
struct AsOwner {
    Oid user;
    int security_context;
    int guc_level;
    MemoryContext caller_context;
};

// SPI as whoever calls, until SPI_finish.
void connect_spi();

// `table` is one of ours.
AsOwner begin_as_owner(const char* table);
void end_as_owner(const AsOwner& frame);

// How a statement finds its rows. By index: a plan made while the table was nearly empty must not
// become a sequential scan that is kept while it grows, so the planner is told to avoid one. A
// statement that reads a whole small table must not be told: disable_cost, which the planner adds
// until 17, is above jit_above_cost, and each backend would JIT-compile the plan.
enum class Access { ByIndex, Whole };

// A statement of ours, prepared on first use in a backend and kept. It names tables with their
// schema; its functions, operators and types are those of pg_catalog, by the pinned search_path.
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

// One of the rows of a query that was just run. Columns count from 1; texts and bytes are copies in
// the current memory context.
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
    // Also bytes, which are stored alike; nullptr: null.
    text* text_at(int column) const {
        return is_null(column) ? nullptr : DatumGetTextPCopy(value(column));
    }

  private:
    HeapTuple row_;
    TupleDesc shape_;
};

// Calls take(FoundRow) with each row of the query that was just run, in the caller's memory
// context.
template <typename Take>
void take_rows(const AsOwner& frame, std::uint64_t rows, Take take) {
    SPITupleTable* found = SPI_tuptable;
    MemoryContext spi_context = MemoryContextSwitchTo(frame.caller_context);
    for (std::uint64_t i = 0; i < rows; i++) take(FoundRow(found->vals[i], found->tupdesc));
    MemoryContextSwitchTo(spi_context);
}

// What make(FoundRow) makes of each row, in the caller's memory context.
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

// Of a statement that will not come again.
void drop_plan(Statement* statement);

// A write all by itself, with a frame of its own. Returns the number of rows.
std::uint64_t write_alone(const char* table, Statement* statement, Datum* values,
                          const char* nulls);

// Sets a setting until the GUC nest level ends that the caller has opened.
void set_locally(const char* setting, const char* value);

}  // namespace idem::pg
