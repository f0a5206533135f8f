#include "operate/statements.hpp"

#include "pg/installed.hpp"

namespace idem::operate {

const char* ask(const char* query) {
    if (SPI_execute(query, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: could not execute \"%s\"", query);
    if (SPI_processed == 0) return nullptr;
    return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

bool holds(const char* condition) {
    const char* answer = ask(psprintf("SELECT %s", condition));
    return answer != nullptr && *answer == 't';
}

void execute(const char* command) {
    if (SPI_execute(command, false, 0) < 0)
        elog(ERROR, "idempotency: could not execute \"%s\"", command);
}

bool is_table_of_citus(const char* table) {
    return holds(
        psprintf("EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid ="
                 " '%s'::pg_catalog.regclass)",
                 table));
}

void execute_each(const char* query) {
    if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: could not execute \"%s\"", query);
    SPITupleTable* commands = SPI_tuptable;
    std::uint64_t count = SPI_processed;
    for (std::uint64_t i = 0; i < count; i++)
        execute(SPI_getvalue(commands->vals[i], commands->tupdesc, 1));
    SPI_freetuptable(commands);
}

}  // namespace idem::operate
