// Citus's planner has the server's planner simplify the query, and then looks whether it is a lone
// call. It takes none with a condition for one (TryToDelegateFunctionCall: "query has a WHERE
// section"). So a query that only became a lone call gets a condition that is always true, when
// the server's planner has chosen all paths: Citus sees it, and the plan does not have it. The
// function then runs here, and makes the call on the other node by itself (forward.cpp).
//
// A plan with a delegated call is marked in its CustomScan, because a plan that was made in one
// transaction may run in another. The executor refuses it if the transaction is read-only.

#include "api/delegation.hpp"

#include "pg/citus.hpp"

namespace idem::api {

namespace {

planner_hook_type next_planner;
create_upper_paths_hook_type next_paths;
ExecutorStart_hook_type next_start;

// The query that Citus looks at. From version 16 on, the server's planner goes on with a copy of it
// when it has removed an outer join.
Query* delegable;

// A bit of CustomScan's flags that neither the server nor Citus uses.
constexpr std::uint32_t kWritesElsewhere = 1U << 30;

// The symbols of functions that write nothing.
constexpr std::string_view kReaders[] = {"idem_get", "idem_operator_explain",
                                         "idem_operator_attempts", "idem_operator_await_claims"};

// What a query has of calls.
struct Calls {
    bool ours;
    bool write;
};

// The symbol of a function in C; nullptr: it is in another language.
const char* symbol_of(HeapTuple row) {
    if (reinterpret_cast<Form_pg_proc>(GETSTRUCT(row))->prolang != ClanguageId) return nullptr;
    bool null = false;
    Datum source = SysCacheGetAttr(PROCOID, row, Anum_pg_proc_prosrc, &null);
    return null ? nullptr : TextDatumGetCString(source);
}

void note_function(Oid function, Calls* calls) {
    if (function < FirstNormalObjectId) return;
    HeapTuple row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(row)) return;
    const char* symbol = symbol_of(row);
    if (symbol != nullptr && strncmp(symbol, "idem_", 5) == 0) {
        calls->ours = true;
        bool reads = false;
        for (std::string_view reader : kReaders) reads = reads || reader == symbol;
        calls->write = calls->write || !reads;
    }
    ReleaseSysCache(row);
}

bool find_calls(Node* node, void* context) {
    if (node == nullptr) return false;
    if (IsA(node, Query))
        return pg::walk_query(reinterpret_cast<Query*>(node), find_calls, context);
    if (IsA(node, FuncExpr))
        note_function(reinterpret_cast<FuncExpr*>(node)->funcid, static_cast<Calls*>(context));
    return pg::walk_expression(node, find_calls, context);
}

Calls calls_of(Query* query) {
    Calls calls{};
    if (query->commandType == CMD_SELECT && query->utilityStmt == nullptr)
        (void)find_calls(reinterpret_cast<Node*>(query), &calls);
    return calls;
}

// SELECT f(...), or SELECT ... FROM f(...), for the simplified query. It still has all tables,
// subqueries and CTEs that the statement had. Where that has no FROM, the planner adds a result.
bool was_lone_call(const Query& query) {
    if (query.hasSubLinks || query.cteList != NIL || list_length(query.rtable) != 1) return false;
    auto* only = linitial_node(RangeTblEntry, query.rtable);
    return only->rtekind == RTE_FUNCTION || (only->rtekind == RTE_RESULT && !only->inFromCl);
}

// Where Citus looks for a call: the query has nothing else.
bool is_lone_call(const Query& query) {
    if (query.setOperations != nullptr || query.jointree->quals != nullptr) return false;
    if (query.jointree->fromlist == NIL) return true;
    auto* only = static_cast<Node*>(linitial(query.jointree->fromlist));
    if (list_length(query.jointree->fromlist) != 1 || !IsA(only, RangeTblRef)) return false;
    int number = reinterpret_cast<RangeTblRef*>(only)->rtindex;
    RTEKind kind = list_nth_node(RangeTblEntry, query.rtable, number - 1)->rtekind;
    return kind == RTE_FUNCTION || kind == RTE_RESULT;
}

void paths(PlannerInfo* root, UpperRelationKind stage, RelOptInfo* input, RelOptInfo* output,
           void* extra) {
    if (next_paths != nullptr) next_paths(root, stage, input, output, extra);
    if (stage != UPPERREL_FINAL || root->parent_root != nullptr || delegable == nullptr) return;
    Query* query = delegable;
    if (is_lone_call(*query) && !was_lone_call(*query) && calls_of(query).ours)
        query->jointree->quals = reinterpret_cast<Node*>(list_make1(makeBoolConst(true, false)));
}

// Planning may run a function, which has statements planned.
PlannedStmt* plan_next(Query* query, IDEM_PLANNER_PARAMETERS) {
    Query* outer = delegable;
    PlannedStmt* volatile planned = nullptr;
    PG_TRY();
    {
        delegable = query;
        planned = next_planner(query, IDEM_PLANNER_ARGUMENTS);
    }
    PG_FINALLY();
    { delegable = outer; }
    PG_END_TRY();
    return planned;
}

// The simplified query has the calls that stood in other functions as well.
PlannedStmt* plan(Query* query, IDEM_PLANNER_PARAMETERS) {
    bool writes = calls_of(query).write;
    PlannedStmt* planned = plan_next(query, IDEM_PLANNER_ARGUMENTS);
    if (IsA(planned->planTree, CustomScan) && (writes || calls_of(query).write))
        reinterpret_cast<CustomScan*>(planned->planTree)->flags |= kWritesElsewhere;
    return planned;
}

void start(QueryDesc* query, int flags) {
    const Plan* plan = query->plannedstmt->planTree;
    if (XactReadOnly && plan != nullptr && IsA(plan, CustomScan) &&
        (reinterpret_cast<const CustomScan*>(plan)->flags & kWritesElsewhere) != 0 &&
        (flags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
        PreventCommandIfReadOnly("a call on another node");
    if (next_start != nullptr)
        next_start(query, flags);
    else
        standard_ExecutorStart(query, flags);
}

}  // namespace

// Citus is loaded before any other library that has hooks, so its planner is called by ours.
void watch_delegation() {
    if (!pg::is_citus_loaded() || planner_hook == nullptr) return;
    next_planner = planner_hook;
    planner_hook = plan;
    next_paths = create_upper_paths_hook;
    create_upper_paths_hook = paths;
    next_start = ExecutorStart_hook;
    ExecutorStart_hook = start;
}

}  // namespace idem::api
