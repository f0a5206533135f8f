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
#include "pg/boundary.hpp"
#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/owner.hpp"
#include "pg/statements.hpp"

namespace idem::operate {

using namespace api;

namespace {

// Distribution by hand leaves out policies, rights and functions.
void check_not_distributed() {
    if (!pg::is_table_of_citus("idempotency.record")) return;
    bool by_hand = !pg::is_table_of_citus("idempotency.policy");
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
    const char* name = pg::ask(psprintf("SELECT %u::pg_catalog.regclass", table));
    const char* column = pg::distribution_column_of(table);
    if (column == nullptr)
        raise_beside(name, "It is not distributed by the hash of a column.",
                     "Distribute it by its tenant.");
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
    if (pg::holds("EXISTS (SELECT FROM idempotency.record WHERE principal = '')"))
        ereport(WARNING, (errmsg("records without a principal are all on one shard"),
                          errdetail("The principal determines the node of a record, and some "
                                    "records have an empty one."),
                          errhint("Pass a principal with every call, for example the tenant.")));
}

// The extension's functions.
constexpr const char* kOurFunctions =
    " FROM pg_catalog.pg_proc p"
    " JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass"
    " AND d.objid = p.oid AND d.deptype = 'e'"
    " JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency'";

// Notes the rights granted by idem_grant until now; from now on idem_grant notes them itself. Rows
// that are already there come from the dump of another cluster. TRUNCATE, because deleting a row
// revokes.
void note_rights() {
    pg::execute("TRUNCATE idempotency.granted");
    pg::execute(psprintf(
        "INSERT INTO idempotency.granted (role, operator, administrator, worker)"
        " SELECT r.rolname, pg_catalog.bool_or(p.prosrc = 'idem_operator_resolve'),"
        " pg_catalog.bool_or(p.prosrc = 'idem_administrator_cleanup'),"
        " pg_catalog.bool_or(p.prosrc = 'idem_worker_claim_due')%s"
        ", pg_catalog.aclexplode(p.proacl) a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee"
        " WHERE p.prosrc IN ('idem_begin', 'idem_operator_resolve', 'idem_administrator_cleanup',"
        " 'idem_worker_claim_due')"
        " AND a.grantee <> p.proowner"
        " GROUP BY r.rolname",
        kOurFunctions));
}

// idem_distribute(colocate_with)
Datum distribute(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_distribute()");
    Oid beside = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
    pg::run([beside] {
        pg::Obstacle obstacle = pg::obstacle_to_distribution();
        if (obstacle.detail != nullptr)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("records cannot be distributed"),
                            errdetail("%s", obstacle.detail), errhint("%s", obstacle.hint)));
        check_not_distributed();
        const char* collation = OidIsValid(beside) ? check_table_beside(beside) : kDefaultCollation;
        // Every table that is truncated at the end, at once and in the mode that TRUNCATE needs. If
        // we locked in two steps, a session that looks up a key and then claims it could come in
        // between, and one of the two would be a deadlock's victim. The order is that in which a
        // call locks the tables.
        pg::execute(
            "LOCK TABLE idempotency.seed, idempotency.policy, idempotency.record,"
            " idempotency.attempt, idempotency.granted IN ACCESS EXCLUSIVE MODE");
        // A backend of this node means nothing on the record's later node: only the lease counts
        // from now on.
        pg::execute(
            "UPDATE idempotency.record SET backend_pid = NULL, backend_start = NULL"
            " WHERE backend_pid IS NOT NULL");
        warn_of_missing_principals();
        take_on_collation(collation);
        // First: each node needs the seed before it serves.
        pg::distribute_copies("idempotency.seed");
        const char* table = "'none'";
        if (OidIsValid(beside))
            table = psprintf("%u::pg_catalog.regclass::pg_catalog.text", beside);
        pg::distribute_table("idempotency.record", "principal", table);
        pg::distribute_table("idempotency.attempt", "principal", "'idempotency.record'");
        pg::distribute_copies("idempotency.policy");
        // Every function with a principal runs on the node with its records.
        pg::delegate_functions(
            psprintf("%s WHERE 'principal' = ANY (p.proargnames)"
                     " AND p.proallargtypes IS NULL ORDER BY p.oid",
                     kOurFunctions));
        // After the functions: by then Citus has created the roles with rights on them on other
        // nodes.
        note_rights();
        pg::distribute_copies("idempotency.granted");
    });
    PG_RETURN_VOID();
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_owner_distribute, idem::operate::distribute);
