// Views and functions of the whole cluster. Some facts only a node itself knows, for example
// statistics and locks. Citus's function for that (run_command_on_all_nodes) asks each node for
// them, with the caller's rights, as JSON. Each such session identifies itself by its
// application_name, and asks no further node.
//
// Without a cluster, a view shows this server only, and names no node.

#include "operate/nodes.hpp"

#include "pg/boundary.hpp"
#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"
#include "pg/statements.hpp"
#include "store/record.hpp"
#include "store/record_table.hpp"
#include "store/store.hpp"
#include "store/sweep.hpp"

namespace idem::operate {

namespace {

// idempotency.this_node(), looked up once per call site of a query.
Datum this_node(FunctionCallInfo fcinfo) {
    struct OwnName {
        text* name;
    };
    FmgrInfo* function = fcinfo->flinfo;
    if (function->fn_extra == nullptr) {
        auto* own = static_cast<OwnName*>(MemoryContextAlloc(function->fn_mcxt, sizeof(OwnName)));
        MemoryContext context = MemoryContextSwitchTo(function->fn_mcxt);
        own->name = name_of_this_node();
        MemoryContextSwitchTo(context);
        function->fn_extra = own;
    }
    text* name = static_cast<OwnName*>(function->fn_extra)->name;
    if (name == nullptr) PG_RETURN_NULL();
    PG_RETURN_TEXT_P(name);
}

// Returns the rows of the query just run. Their types may differ from the declared ones: an owner
// can alter a table or a view.
void return_rows(ReturnSetInfo* result) {
    TupleConversionMap* map = convert_tuples_by_position(SPI_tuptable->tupdesc, result->setDesc,
                                                         "idempotency: not the declared columns");
    for (std::uint64_t i = 0; i < SPI_processed; i++) {
        HeapTuple row = SPI_tuptable->vals[i];
        tuplestore_puttuple(result->setResult,
                            map == nullptr ? row : execute_attr_map_tuple(row, map));
    }
}

// The relation of our schema whose row type the argument has, with its schema.
const char* relation_of_shape(FunctionCallInfo fcinfo) {
    Oid type = get_fn_expr_argtype(fcinfo->flinfo, 0);
    Oid relation = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;
    Oid schema = OidIsValid(relation) ? get_rel_namespace(relation) : InvalidOid;
    if (!OidIsValid(schema) || schema != get_namespace_oid(pg::kExtension, true))
        ereport(ERROR,
                (errcode(ERRCODE_DATATYPE_MISMATCH),
                 errmsg("\"shape\" is not a row of a view of the schema \"%s\"", pg::kExtension)));
    return quote_qualified_identifier(pg::kExtension, get_rel_name(relation));
}

// Leaves out a node that can't be reached or fails, with a warning, so that the other nodes are
// shown.
void return_rows_of_nodes(const char* view, ReturnSetInfo* result) {
    int count;
    const pg::NodeAnswer* answers =
        pg::run_on_all_nodes(psprintf("SELECT pg_catalog.jsonb_agg(v) FROM %s v", view), &count);
    for (int i = 0; i < count; i++) {
        const char* rows = answers[i].result;
        if (!answers[i].success) {
            ereport(WARNING, (errcode(ERRCODE_CONNECTION_EXCEPTION),
                              errmsg("a node could not be queried and is left out"),
                              errdetail("%s", rows == nullptr ? "It gives no reason." : rows)));
        } else if (rows != nullptr && *rows != '\0') {
            (void)pg::select(
                psprintf("SELECT * FROM pg_catalog.jsonb_populate_recordset(NULL::%s, %s)", view,
                         quote_literal_cstr(rows)),
                true);
            return_rows(result);
        }
    }
}

// idempotency.of_nodes(shape): the rows, on every node, of the view whose row type `shape` has.
Datum of_nodes(FunctionCallInfo fcinfo) {
    const char* view = relation_of_shape(fcinfo);
    InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    pg::connect_spi();
    if (asks_other_nodes()) {
        return_rows_of_nodes(view, result);
    } else {
        (void)pg::select(psprintf("SELECT * FROM %s", view), true);
        return_rows(result);
    }
    (void)SPI_finish();
    return 0;
}

// idempotency.tables_here(): shard, table, store, why. A row per table with records on this node.
Datum tables_here(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    int count;
    store::RecordTable* tables = store::local_tables(&count);
    for (int i = 0; i < count; i++) {
        store::Service service = store::service_of(tables[i]);
        Datum values[] = {Int64GetDatum(tables[i].shard), ObjectIdGetDatum(tables[i].table),
                          CStringGetTextDatum(service.store),
                          service.why == nullptr ? 0 : CStringGetTextDatum(service.why)};
        bool nulls[] = {tables[i].shard == 0, false, false, service.why == nullptr};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return 0;
}

// idempotency.claims_here()
Datum claims_here(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    // Members of pg_monitor may call it, but do not see requests and answers.
    AclResult right = pg_class_aclcheck(pg::table_oid("records"), GetUserId(), ACL_SELECT);
    const char* of_readers = right == ACLCHECK_OK ? "error, reference" : "NULL, NULL";
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    int count;
    store::RecordTable* tables = store::local_tables(&count);
    for (int i = 0; i < count; i++) {
        const char* sql = psprintf(
            "SELECT scope, principal, key, status, if_silent, attempt, holder, recovery_point, %s,"
            " backend_pid, backend_start, claimed_at, lease_until, finished_at, retained_until"
            " FROM %s WHERE status = ANY ('{i,u,x}'::\"char\"[])",
            of_readers, pg::qualified_name(tables[i].table));
        pg::Statement claims = {sql, 0, nullptr, pg::Access::ByIndex, nullptr};
        pg::AsOwner frame = pg::begin_as_owner(store::kRecordTable);
        (void)pg::run_read(&claims, nullptr, nullptr);
        return_rows(result);
        pg::drop_plan(&claims);
        pg::end_as_owner(frame);
    }
    return 0;
}

// idempotency.backlog(until): counting a million rows would take half a second each time.
Datum backlog(FunctionCallInfo fcinfo) {
    constexpr std::int64_t kCounted = 10'000;
    TupleDesc shape;
    if (get_call_result_type(fcinfo, nullptr, &shape) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "idempotency.backlog() is not declared with a row");
    store::Backlog backlog = PG_ARGISNULL(0) ? store::Backlog{0, pg::kNoTime}
                                             : store::backlog(PG_GETARG_TIMESTAMPTZ(0), kCounted);
    Datum values[] = {Int64GetDatum(backlog.rows), TimestampTzGetDatum(backlog.oldest)};
    bool nulls[] = {false, backlog.oldest == pg::kNoTime};
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(shape), values, nulls)));
}

}  // namespace

text* name_of_this_node() {
    if (!store::is_distributed()) return nullptr;
    MemoryContext context = CurrentMemoryContext;
    pg::connect_spi();
    const char* address = pg::address_of_this_node();
    MemoryContext spi_context = MemoryContextSwitchTo(context);
    text* name = address == nullptr ? nullptr : cstring_to_text(address);
    MemoryContextSwitchTo(spi_context);
    (void)SPI_finish();
    return name;
}

bool asks_other_nodes() {
    return store::is_distributed() && !pg::answers_command_of_citus();
}

std::int64_t sum_of_nodes(char* (*statement)(std::int64_t before, void* argument), void* argument) {
    std::int64_t sum = 0;
    pg::connect_spi();
    int count;
    const pg::ClusterNode* nodes = pg::active_nodes(&count);
    for (int i = 0; i < count; i++) {
        pg::NodeAnswer answer = pg::run_on_node(nodes[i], statement(sum, argument));
        if (!answer.success || answer.result == nullptr)
            ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION),
                            errmsg("node %s:%s could not be queried", nodes[i].host, nodes[i].port),
                            errdetail("%s", answer.result)));
        sum += pg_strtoint64(answer.result);
    }
    (void)SPI_finish();
    return sum;
}

}  // namespace idem::operate

IDEM_FUNCTION(idem_this_node, idem::operate::this_node);
IDEM_FUNCTION(idem_of_nodes, idem::operate::of_nodes);
IDEM_FUNCTION(idem_claims_here, idem::operate::claims_here);
IDEM_FUNCTION(idem_backlog, idem::operate::backlog);
IDEM_FUNCTION(idem_tables_here, idem::operate::tables_here);
