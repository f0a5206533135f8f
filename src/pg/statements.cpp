#include "pg/statements.hpp"

namespace idem::pg {

std::uint64_t select(const char* query, bool read_only) {
    if (SPI_execute(query, read_only, 0) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: could not execute \"%s\"", query);
    return SPI_processed;
}

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

void execute_each(const char* query) {
    std::uint64_t count = select(query, true);
    SPITupleTable* commands = SPI_tuptable;
    for (std::uint64_t i = 0; i < count; i++)
        execute(SPI_getvalue(commands->vals[i], commands->tupdesc, 1));
    SPI_freetuptable(commands);
}

}  // namespace idem::pg
