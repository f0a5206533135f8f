// Statements of whoever calls, for what the extension does to itself: with the caller's rights, by
// SPI. Names in them are qualified, or of pg_catalog.
#pragma once

#include "pg/owner.hpp"

namespace idem::operate {

// With pg_catalog alone on the search_path, in a connection to SPI.
template <typename Statements>
void run(Statements statements) {
    int guc_level = NewGUCNestLevel();
    pg::set_locally("search_path", "pg_catalog, pg_temp");
    pg::connect_spi();
    statements();
    (void)SPI_finish();
    AtEOXact_GUC(false, guc_level);
}

// ---- in a connection to SPI, as within run ----

// The first value of a query's first row, or nullptr.
const char* ask(const char* query);
// A condition: false also where it is null.
bool holds(const char* condition);
void execute(const char* command);
// Whether it is a table of Citus; it has its schema. Citus is there.
bool is_table_of_citus(const char* table);
// Executes what a query has put together, row by row.
void execute_each(const char* query);

}  // namespace idem::operate
