#include "api/statements.hpp"

namespace idem::api {

bool has_citus() {
    return OidIsValid(get_extension_oid("citus", true));
}

void keep_to_this_node() {
    if (has_citus()) pg::set_locally("citus.enable_ddl_propagation", "off");
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
    if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: could not execute \"%s\"", query);
    SPITupleTable* commands = SPI_tuptable;
    std::uint64_t count = SPI_processed;
    for (std::uint64_t i = 0; i < count; i++)
        execute(SPI_getvalue(commands->vals[i], commands->tupdesc, 1));
    SPI_freetuptable(commands);
}

}  // namespace idem::api
