// Mirrors ri_PerformCheck (ri_triggers.c) for foreign keys: a plan is prepared once and kept, and
// runs as the owner of the table, with a snapshot that we choose. In addition it has the
// restriction of REFRESH MATERIALIZED VIEW (SECURITY_RESTRICTED_OPERATION).

#include "pg/owner.hpp"

namespace idem::pg {

namespace {

Oid owner_of(Oid table) {
    check_version();
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple)) raise_not_installed();
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

void prepare(Statement* statement) {
    SPIPlanPtr plan =
        SPI_prepare_cursor(statement->sql, statement->nargs, const_cast<Oid*>(statement->types),
                           CURSOR_OPT_GENERIC_PLAN);
    if (plan == nullptr)
        elog(ERROR, "idempotency: SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
    if (SPI_keepplan(plan) != 0) elog(ERROR, "idempotency: SPI_keepplan failed");
    statement->plan = plan;
}

std::uint64_t run(Statement* statement, Datum* values, const char* nulls, bool read_only) {
    if (statement->access == Access::ByIndex) set_locally("enable_seqscan", "off");
    if (statement->plan == nullptr) prepare(statement);
    int result = SPI_execute_snapshot(statement->plan, values, nulls, GetActiveSnapshot(),
                                      InvalidSnapshot, read_only, true, 0);
    if (result < 0)
        elog(ERROR, "idempotency: SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
    return SPI_processed;
}

}  // namespace

void set_locally(const char* setting, const char* value) {
    (void)set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
}

void connect_spi() {
    if (SPI_connect() != SPI_OK_CONNECT) elog(ERROR, "idempotency: SPI_connect failed");
}

AsOwner begin_as_owner(const char* table) {
    AsOwner frame;
    frame.caller_context = CurrentMemoryContext;
    // If another session is changing the table, its owner is known only after the wait.
    Oid owner = owner_of(lock_table(table, AccessShareLock));
    GetUserIdAndSecContext(&frame.user, &frame.security_context);
    SetUserIdAndSecContext(owner, frame.security_context | SECURITY_LOCAL_USERID_CHANGE |
                                      SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS);
    frame.guc_level = NewGUCNestLevel();
    set_locally("search_path", "pg_catalog, pg_temp");
    connect_spi();
    // Writes of the calling command itself become visible too.
    CommandCounterIncrement();
    PushActiveSnapshot(GetLatestSnapshot());
    return frame;
}

void end_as_owner(const AsOwner& frame) {
    PopActiveSnapshot();
    if (SPI_finish() != SPI_OK_FINISH) elog(ERROR, "idempotency: SPI_finish failed");
    AtEOXact_GUC(false, frame.guc_level);
    SetUserIdAndSecContext(frame.user, frame.security_context);
    MemoryContextSwitchTo(frame.caller_context);
}

std::uint64_t run_read(Statement* statement, Datum* values, const char* nulls) {
    return run(statement, values, nulls, true);
}

std::uint64_t run_write(Statement* statement, Datum* values, const char* nulls) {
    return run(statement, values, nulls, false);
}

void drop_plan(Statement* statement) {
    (void)SPI_freeplan(statement->plan);
    statement->plan = nullptr;
}

std::uint64_t write_alone(const char* table, Statement* statement, Datum* values,
                          const char* nulls) {
    AsOwner frame = begin_as_owner(table);
    std::uint64_t rows = run_write(statement, values, nulls);
    end_as_owner(frame);
    return rows;
}

const char* qualified_name(Oid table) {
    const char* name = get_rel_name(table);
    if (name == nullptr) raise_dropped();
    return quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), name);
}

}  // namespace idem::pg
