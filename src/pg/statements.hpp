// Statements with the caller's rights, by SPI, for changes of the extension itself. Names in them
// are qualified, or of pg_catalog.
#pragma once

#include "pg/owner.hpp"

namespace idem::pg {

// With pg_catalog alone on the search_path, in a connection to SPI.
template <typename Statements>
void run(Statements statements) {
    int guc_level = NewGUCNestLevel();
    set_locally("search_path", "pg_catalog, pg_temp");
    connect_spi();
    statements();
    (void)SPI_finish();
    AtEOXact_GUC(false, guc_level);
}

// ---- in a connection to SPI, as within run ----

// Runs a query. Returns the number of its rows, which are in SPI_tuptable.
std::uint64_t select(const char* query, bool read_only);
// The first value of a query's first row, or nullptr.
const char* ask(const char* query);
// False also if the condition is null.
bool holds(const char* condition);
void execute(const char* command);
// Executes each row of a query as a statement.
void execute_each(const char* query);

}  // namespace idem::pg
