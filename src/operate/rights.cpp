// idem_grant and idem_revoke: plain GRANT and REVOKE by the caller, who must therefore own the
// extension.
//
// In a cluster each node has its own rights. A row of idempotency.granted says which role has which
// rights. Every node has a copy of that table, and grants or revokes as its copy says. The table's
// check grants: Citus runs it also when it fills the copy of a new node, before it creates the
// triggers. A trigger revokes when a row is deleted.

#include <iterator>

#include "api/arguments.hpp"
#include "claim/audit.hpp"
#include "pg/boundary.hpp"
#include "pg/citus.hpp"
#include "pg/installed.hpp"
#include "pg/jsonb.hpp"
#include "pg/owner.hpp"
#include "pg/statements.hpp"
#include "store/record_table.hpp"

namespace idem::operate {

using namespace api;

namespace {

// What a role may have: the functions that the install script has revoked from PUBLIC, by the
// beginning of their symbols. Neither of the two rights to operate implies the other, so only the
// functions of one of them tell that a role has it. The columns of idempotency.granted, after the
// role, are those that may be had besides the protocol.
struct Right {
    const char* name;
    const char* functions;
    const char* its_own;
};

constexpr const char* kOfProtocol =
    "p.prosrc !~ '^idem_(operator|administrator|staff|worker|owner)_'";

constexpr const char* kOfWorker = "p.prosrc ~ '^idem_worker_'";

constexpr Right kRights[] = {
    {"protocol", kOfProtocol, kOfProtocol},
    {"operator", "p.prosrc ~ '^idem_(operator|staff)_'", "p.prosrc ~ '^idem_operator_'"},
    {"administrator", "p.prosrc ~ '^idem_(administrator|staff)_'",
     "p.prosrc ~ '^idem_administrator_'"},
    {"worker", kOfWorker, kOfWorker},
};
constexpr int kRightCount = static_cast<int>(std::size(kRights));
constexpr int kProtocol = 0;
constexpr int kOperator = 1;
constexpr int kAdministrator = 2;
constexpr int kWorker = 3;

struct Rights {
    bool has[kRightCount];
};

Rights chosen(bool as_operator, bool as_administrator, bool as_worker) {
    Rights rights{};
    rights.has[kProtocol] = true;
    rights.has[kOperator] = as_operator;
    rights.has[kAdministrator] = as_administrator;
    rights.has[kWorker] = as_worker;
    return rights;
}

// Their names with schema and arguments. Regprocedure qualifies them, because only pg_catalog is on
// the search_path. pg_init_privs keeps the fact that the install script revoked them, whatever was
// granted since. Functions of the schema "idempotency" are for views.
const char* function_list(const char* which) {
    const char* functions = pg::ask(psprintf(
        "SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', '"
        " ORDER BY p.oid)"
        " FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_proc p"
        " ON p.pronamespace = e.extnamespace"
        " JOIN pg_catalog.pg_depend d ON d.objid = p.oid AND d.refobjid = e.oid AND d.deptype = 'e'"
        " JOIN pg_catalog.pg_init_privs i"
        " ON i.objoid = p.oid AND i.classoid = d.classid"
        " WHERE e.extname = 'idempotency'"
        " AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass"
        " AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND %s",
        which));
    if (functions == nullptr) elog(ERROR, "idempotency: the functions could not be listed");
    return functions;
}

void give_here(const char* role, const Rights& rights) {
    pg::run([role, &rights] {
        pg::keep_ddl_to_this_node();
        for (int i = 0; i < kRightCount; i++)
            if (rights.has[i])
                pg::execute(psprintf("GRANT EXECUTE ON ROUTINE %s TO %s",
                                     function_list(kRights[i].functions), role));
    });
}

void take_here(const char* role) {
    pg::run([role] {
        pg::keep_ddl_to_this_node();
        for (const Right& right : kRights)
            pg::execute(psprintf("REVOKE EXECUTE ON ROUTINE %s FROM %s",
                                 function_list(right.functions), role));
    });
}

// Asks the functions themselves: a row of idempotency.granted outlives its role, and a new role of
// the same name has no rights yet.
bool has_here(Oid role, const Right& right) {
    return pg::holds(
        psprintf("EXISTS (SELECT FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_proc p"
                 " ON p.pronamespace = e.extnamespace, pg_catalog.aclexplode(p.proacl) a"
                 " WHERE e.extname = 'idempotency' AND %s AND a.grantee = %u)",
                 right.its_own, role));
}

// For the audit, with the changes of this command.
Jsonb* rights_of(Oid role) {
    Rights rights;
    CommandCounterIncrement();
    PushActiveSnapshot(GetLatestSnapshot());
    pg::run([&] {
        for (int i = 0; i < kRightCount; i++) rights.has[i] = has_here(role, kRights[i]);
    });
    PopActiveSnapshot();
    pg::JsonbObject object = pg::begin_object();
    for (int i = 0; i < kRightCount; i++) pg::add_flag(&object, kRights[i].name, rights.has[i]);
    return pg::end_object(&object);
}

// Changes what a role may call.
template <typename Change>
void audited(const char* action, Oid role, const text* reason, Change change) {
    claim::Audited what{};
    what.action = action;
    what.role = GetUserNameFromId(role, false);
    what.reason = reason;
    what.before = rights_of(role);
    change();
    what.after = rights_of(role);
    claim::audit(what);
}

void give_everywhere(Oid oid, const char* role, const Rights& rights) {
    pg::run([oid, role, &rights] {
        auto keeps = [oid, &rights](int right) {
            return rights.has[right] || has_here(oid, kRights[right]) ? "true" : "false";
        };
        pg::execute(psprintf(
            "INSERT INTO idempotency.granted (role, operator, administrator, worker)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (role) DO UPDATE"
            " SET operator = EXCLUDED.operator,"
            " administrator = EXCLUDED.administrator, worker = EXCLUDED.worker",
            quote_literal_cstr(role), keeps(kOperator), keeps(kAdministrator), keeps(kWorker)));
    });
}

// Writes a row first, so that rights granted in another way are revoked too.
void take_everywhere(const char* role) {
    pg::run([role] {
        const char* name = quote_literal_cstr(role);
        pg::execute(
            psprintf("INSERT INTO idempotency.granted (role, operator, administrator, worker)"
                     " VALUES (%s, false, false, false) ON CONFLICT (role) DO NOTHING",
                     name));
        pg::execute(psprintf("DELETE FROM idempotency.granted WHERE role = %s", name));
    });
}

// idem_grant(role, operator, reason, administrator, worker)
Datum grant_rights(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) raise_null("role");
    Oid oid = PG_GETARG_OID(0);
    const char* role = GetUserNameFromId(oid, false);
    pg::require_writable("GRANT");
    Rights rights =
        chosen(bool_or(fcinfo, 1, false), bool_or(fcinfo, 3, false), bool_or(fcinfo, 4, false));
    audited("grant", oid, reason_or_null(fcinfo, 2), [&] {
        if (store::is_distributed())
            give_everywhere(oid, role, rights);
        else
            give_here(quote_identifier(role), rights);
    });
    PG_RETURN_VOID();
}

// idem_revoke(role, reason)
Datum revoke_rights(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) raise_null("role");
    Oid oid = PG_GETARG_OID(0);
    const char* role = GetUserNameFromId(oid, false);
    pg::require_writable("REVOKE");
    audited("revoke", oid, reason_or_null(fcinfo, 1), [&] {
        if (store::is_distributed())
            take_everywhere(role);
        else
            take_here(quote_identifier(role));
    });
    PG_RETURN_VOID();
}

// ---- a node's copy of idempotency.granted ----

// Without Citus a row comes from a dump. The dump also grants, and the role may be missing.
bool counts_here(const char* role) {
    return pg::has_citus() && OidIsValid(get_role_oid(role, true));
}

// The table's check of a row: role, operator, administrator, worker.
Datum granted_here(FunctionCallInfo fcinfo) {
    const char* role = NameStr(*PG_GETARG_NAME(0));
    if (counts_here(role))
        give_here(quote_identifier(role),
                  chosen(PG_GETARG_BOOL(1), PG_GETARG_BOOL(2), PG_GETARG_BOOL(3)));
    PG_RETURN_BOOL(true);
}

// The trigger for a deleted row.
Datum revoked_here(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    auto* data = reinterpret_cast<TriggerData*>(fcinfo->context);
    bool null;
    Datum column = heap_getattr(data->tg_trigtuple, 1, RelationGetDescr(data->tg_relation), &null);
    const char* role = NameStr(*DatumGetName(column));
    if (counts_here(role)) take_here(quote_identifier(role));
    return 0;
}

// ---- tables that only the owner writes ----

// The trigger before each row and before TRUNCATE. Members of pg_write_all_data have privileges on
// every table. Row security instead would keep members of pg_read_all_data from dumping it.
Datum owner_writes(FunctionCallInfo fcinfo) {
    check_is_trigger(fcinfo);
    auto* data = reinterpret_cast<TriggerData*>(fcinfo->context);
    if (!has_privs_of_role(GetUserId(), data->tg_relation->rd_rel->relowner))
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("permission denied for table %s",
                               RelationGetRelationName(data->tg_relation)),
                        errdetail("Only its owner may write to it, regardless of grants.")));
    bool updates = TRIGGER_FIRED_BY_UPDATE(data->tg_event);
    return PointerGetDatum(updates ? data->tg_newtuple : data->tg_trigtuple);
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_owner_grant, idem::operate::grant_rights);
IDEM_FUNCTION(idem_owner_revoke, idem::operate::revoke_rights);
IDEM_FUNCTION(idem_owner_granted_here, idem::operate::granted_here);
IDEM_FUNCTION(idem_owner_revoked_here, idem::operate::revoked_here);
IDEM_FUNCTION(idem_owner_writes, idem::operate::owner_writes);
