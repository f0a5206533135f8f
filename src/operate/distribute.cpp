// idem_distribute: makes the extension's tables tables of Citus, in the caller's transaction.
//
// Everything uses Citus's public features. Records become a distributed table, policies a reference
// table. The protocol's functions are delegated to the node with the principal's shard. Three
// things are less plain:
// - Policies and the seed of the locks have triggers, which announce a change to every backend.
//   Citus accepts such tables with citus.enable_unsafe_triggers. It warns of triggers that query
//   other nodes; ours do not. Each node's copy of the table has the triggers, so every node
//   announces the change.
// - On workers, and on nodes that join later, CREATE EXTENSION makes the extension's tables, and
//   not Citus. Citus then compares the principal's collation with that of the colocated tables. So
//   it must be right when the extension is created: fit_to_citus(). idem_distribute() corrects an
//   extension that is older than Citus: fit_records().
// - Grants on functions of an extension do not reach nodes that join later: rights.cpp grants them.

#include "api/arguments.hpp"
#include "operate/collation.hpp"
#include "operate/statements.hpp"
#include "pg/boundary.hpp"
#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"

namespace idem::operate {

using namespace api;

namespace {

constexpr const char* kOldestCitus = "13.2";

// ---- checks ----

[[noreturn]] void raise_state(const char* detail, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("records cannot be distributed"), errdetail("%s", detail),
                    errhint("%s", hint)));
    pg_unreachable();
}

void check_citus() {
    if (!pg::has_citus())
        raise_state("The extension citus is not installed in this database.",
                    "Install it on every node, and run CREATE EXTENSION citus.");
    const char* version =
        ask("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'citus'");
    if (strverscmp(version, kOldestCitus) < 0)
        raise_state(
            psprintf("Citus %s is too old: %s or later is required.", version, kOldestCitus),
            "Update Citus on every node.");
}

// Also checks that the coordinator has a copy of reference tables. Without one its backends would
// miss policy changes made on other nodes.
void check_coordinator() {
    if (!holds("(SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group)"))
        raise_state("This node is not the coordinator.",
                    "Call idem_distribute() on the coordinator.");
    if (holds("EXISTS (SELECT FROM pg_catalog.pg_dist_node)"
              " AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_node WHERE groupid = 0)"))
        raise_state("Citus does not know the coordinator's address.",
                    "Set it with citus_set_coordinator_host().");
}

// Distribution by hand leaves out policies, rights and functions.
void check_not_distributed() {
    if (!is_table_of_citus("idempotency.record")) return;
    bool by_hand = !is_table_of_citus("idempotency.policy");
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("records are distributed already"),
         errdetail(by_hand
                       ? "Table idempotency.record is a Citus table, but the other tables are not."
                       : "Table idempotency.record is a Citus table."),
         errhint(by_hand ? "Dump the database, restore it, and call idem_distribute()."
                         : "Nodes that join later need no further call.")));
}

[[noreturn]] void raise_beside(const char* table, const char* detail, const char* hint) {
    ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
                    errmsg("records cannot be colocated with table %s", table),
                    errdetail("%s", detail), errhint("%s", hint)));
    pg_unreachable();
}

// The principal is distributed like the table's distribution column. Returns that column's
// collation.
const char* check_table_beside(Oid table) {
    const char* name = ask(psprintf("SELECT %u::pg_catalog.regclass", table));
    const char* column =
        ask(psprintf("SELECT pg_catalog.column_to_column_name(logicalrelid, partkey)"
                     " FROM pg_catalog.pg_dist_partition"
                     " WHERE logicalrelid = %u AND partmethod = 'h' AND repmodel = 's'",
                     table));
    if (column == nullptr)
        raise_beside(name, "It is not distributed by the hash of a column.",
                     "Distribute it by its tenant with create_distributed_table().");
    AttrNumber number = get_attnum(table, column);
    Oid type;
    std::int32_t modifier;
    Oid collation;
    get_atttypetypmodcoll(table, number, &type, &modifier, &collation);
    if (type != TEXTOID)
        raise_beside(
            name,
            psprintf("It is distributed by column %s of type %s.", column, format_type_be(type)),
            "Principals have type text: distribute the table by a column of type text.");
    const char* everywhere = name_everywhere(collation);
    if (everywhere == nullptr)
        raise_beside(name,
                     psprintf("Its distribution column %s has the collation %s, which is "
                              "nondeterministic or can be missing on other nodes.",
                              column, quote_identifier(get_collation_name(collation))),
                     "Principals take on the column's collation: distribute the table by a column"
                     " with the database's, or with a deterministic one of pg_catalog.");
    return everywhere;
}

// ---- steps ----

void warn_of_missing_principals() {
    if (holds("EXISTS (SELECT FROM idempotency.record WHERE principal = '')"))
        ereport(WARNING, (errmsg("records without a principal are all on one shard"),
                          errdetail("The principal determines the node of a record, and some "
                                    "records have an empty one."),
                          errhint("Pass a principal with every call, for example the tenant.")));
}

// Locks every table that is truncated at the end, at once and in the mode that TRUNCATE needs. If
// we locked in two steps, a session that looks up a key and then claims it could come in between,
// and one of the two would be a deadlock's victim. The order is that in which a call locks the
// tables.
void lock_tables() {
    execute(
        "LOCK TABLE idempotency.seed, idempotency.policy, idempotency.record, idempotency.attempt,"
        " idempotency.granted"
        " IN ACCESS EXCLUSIVE MODE");
}

// A backend of this node means nothing on the record's later node: only the lease counts from now
// on.
void forget_backends() {
    execute(
        "UPDATE idempotency.record SET backend_pid = NULL, backend_start = NULL"
        " WHERE backend_pid IS NOT NULL");
}

// A shard has one copy on one node: our writes would reach only one of several. Citus copies rows
// to the shards and leaves them in the coordinator's table, where no query sees them; so they are
// truncated.
void distribute_by_principal(const char* table, const char* beside) {
    execute(
        psprintf("SELECT pg_catalog.create_distributed_table('%s', 'principal',"
                 " colocate_with => %s)",
                 table, beside));
    execute(
        psprintf("SELECT pg_catalog.truncate_local_data_after_distributing_table('%s')", table));
}

void distribute_records(Oid beside) {
    pg::make_one_copy_of_shards();
    distribute_by_principal("idempotency.record",
                            OidIsValid(beside)
                                ? psprintf("%u::pg_catalog.regclass::pg_catalog.text", beside)
                                : "'none'");
    distribute_by_principal("idempotency.attempt", "'idempotency.record'");
}

// A reference table: every node has a copy.
void distribute_copies(const char* table) {
    pg::take_tables_with_triggers();
    execute(psprintf("SELECT pg_catalog.create_reference_table('%s')", table));
    execute(
        psprintf("SELECT pg_catalog.truncate_local_data_after_distributing_table('%s')", table));
}

// The extension's functions.
constexpr const char* kOurFunctions =
    " FROM pg_catalog.pg_proc p"
    " JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass"
    " AND d.objid = p.oid AND d.deptype = 'e'"
    " JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency'";

// Every function with a principal runs on the node with its records.
void distribute_functions() {
    execute_each(psprintf(
        "SELECT pg_catalog.format('SELECT pg_catalog.create_distributed_function(%%L,"
        " ''principal'', colocate_with => ''idempotency.record'', force_delegation => true)',"
        " p.oid::pg_catalog.regprocedure)%s"
        " WHERE 'principal' = ANY (p.proargnames) AND p.proallargtypes IS NULL ORDER BY p.oid",
        kOurFunctions));
}

// Notes the rights granted by idem_grant until now; from now on idem_grant notes them itself. Rows
// that are already there come from the dump of another cluster. TRUNCATE, because deleting a row
// revokes.
void note_rights() {
    execute("TRUNCATE idempotency.granted");
    execute(psprintf(
        "INSERT INTO idempotency.granted (role, operator)"
        " SELECT r.rolname, pg_catalog.bool_or(p.prosrc = 'idem_operator_cleanup')%s"
        ", pg_catalog.aclexplode(p.proacl) a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee"
        " WHERE p.prosrc IN ('idem_begin', 'idem_operator_cleanup') AND a.grantee <> p.proowner"
        " GROUP BY r.rolname",
        kOurFunctions));
}

// idem_distribute(colocate_with)
Datum distribute(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_distribute()");
    Oid beside = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
    run([beside] {
        check_citus();
        check_coordinator();
        check_not_distributed();
        const char* collation = OidIsValid(beside) ? check_table_beside(beside) : kDefaultCollation;
        lock_tables();
        forget_backends();
        warn_of_missing_principals();
        take_on_collation(collation);
        // First: each node needs the seed before it serves.
        distribute_copies("idempotency.seed");
        distribute_records(beside);
        distribute_copies("idempotency.policy");
        distribute_functions();
        // After the functions: by then Citus has created the roles with rights on them on other
        // nodes.
        note_rights();
        distribute_copies("idempotency.granted");
    });
    PG_RETURN_VOID();
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_owner_distribute, idem::operate::distribute);
