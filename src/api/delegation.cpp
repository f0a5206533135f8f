// Two hooks, before and after Citus's own.
//
// Citus takes no statement with a condition for a lone call (TryToDelegateFunctionCall: "query has
// a WHERE section"). So a statement that has more than the call gets a condition that is always
// true, and that the planner can't drop. The function then runs here, and makes the call on the
// other node by itself (forward.cpp).
//
// A plan with a delegated call is marked in its CustomScan, because a plan that was made in one
// transaction may run in another. The executor refuses it if the transaction is read-only.

#include "api/delegation.hpp"

#include "pg/citus.hpp"

namespace idem::api {

namespace {

planner_hook_type next_planner;
ExecutorStart_hook_type next_start;

// A bit of CustomScan's flags that neither the server nor Citus uses.
constexpr std::uint32_t kWritesElsewhere = 1U << 30;

// The symbols of functions that write nothing.
constexpr std::string_view kReaders[] = {"idem_get", "idem_operator_explain",
                                         "idem_operator_attempts", "idem_operator_await_claims"};

// What a query has of calls.
struct Calls {
    bool ours;
    bool write;
    bool inlined;  // of a function whose query the planner may put in the call's place
};

// The conditions of inline_set_returning_function that do not depend on the call.
bool may_be_inlined(HeapTuple row) {
    auto* form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(row));
    return form->prolang == SQLlanguageId && form->proretset && !form->proisstrict &&
           !form->prosecdef && form->provolatile != PROVOLATILE_VOLATILE &&
           heap_attisnull(row, Anum_pg_proc_proconfig, nullptr);
}

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
    calls->inlined = calls->inlined || may_be_inlined(row);
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

// SELECT f(...), or SELECT ... FROM f(...).
bool is_lone_call(const Query& query) {
    if (query.hasSubLinks || query.cteList != NIL || query.setOperations != nullptr) return false;
    if (query.jointree->quals != nullptr) return false;
    if (query.rtable == NIL) return true;
    return list_length(query.rtable) == 1 &&
           linitial_node(RangeTblEntry, query.rtable)->rtekind == RTE_FUNCTION;
}

// Then it stays more than a lone call.
bool has_table(const Query& query) {
    ListCell* entry;
    foreach (entry, query.rtable)
        if (lfirst_node(RangeTblEntry, entry)->rtekind == RTE_RELATION) return true;
    return false;
}

// now() IS NOT NULL: no constant for the planner, and evaluated once.
Node* always_true() {
    auto* test = makeNode(NullTest);
    test->arg = reinterpret_cast<Expr*>(
        makeFuncExpr(F_NOW, TIMESTAMPTZOID, NIL, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL));
    test->nulltesttype = IS_NOT_NULL;
    test->argisrow = false;
    test->location = -1;
    return reinterpret_cast<Node*>(test);
}

PlannedStmt* plan(Query* query, IDEM_PLANNER_PARAMETERS) {
    Calls calls{};
    if (query->commandType == CMD_SELECT && query->utilityStmt == nullptr)
        (void)find_calls(reinterpret_cast<Node*>(query), &calls);
    bool stays_alone = calls.ours && !calls.inlined && is_lone_call(*query);
    if ((calls.ours || calls.inlined) && !stays_alone && !has_table(*query))
        query->jointree->quals = make_and_qual(query->jointree->quals, always_true());
    PlannedStmt* planned = next_planner(query, IDEM_PLANNER_ARGUMENTS);
    if (calls.write && IsA(planned->planTree, CustomScan))
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
    next_start = ExecutorStart_hook;
    ExecutorStart_hook = start;
}

}  // namespace idem::api
