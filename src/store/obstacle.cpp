// Looks for everything that the executor does beside writing a tuple and its index entries:
// ExecConstraints, ExecBRInsertTriggers and similar, rules, ExecComputeStoredGenerated, partition
// routing, FormIndexDatum of expressions. A table with any of that is not "plain".

#include "store/obstacle.hpp"

#include "pg/boundary.hpp"
#include "store/record.hpp"

extern "C" Datum idem_is_record(PG_FUNCTION_ARGS);

namespace idem::store {

namespace {

// ---- columns ----

// Columns that were added and dropped again remain after ours, and are null.
bool has_our_columns(Relation table) {
    TupleDesc desc = RelationGetDescr(table);
    if (desc->natts < kColumnCount) return false;
    for (int i = 0; i < desc->natts; i++) {
        Form_pg_attribute column = TupleDescAttr(desc, i);
        if (i >= kColumnCount && !column->attisdropped) return false;
        if (i >= kColumnCount) continue;
        const ColumnType& ours = kColumnTypes[i];
        if (column->attisdropped || column->attgenerated != '\0' || column->attidentity != '\0' ||
            column->atttypid != ours.type || strcmp(NameStr(column->attname), ours.name) != 0 ||
            (column->attnotnull && ours.may_be_null))
            return false;
    }
    return true;
}

// ---- expressions ----
//
// The expressions of the install script are identified by their content. A name proves nothing: the
// owner of the table can give it to another expression.

bool is_our_column(void* node, AttrNumber column) {
    auto* var = static_cast<Var*>(node);
    return IsA(var, Var) && var->varattno == column;
}

// status = ANY ('{i,u,x}'), exactly these, as the install script writes it and as a shard's copy
// has it.
bool is_outstanding(void* node) {
    auto* any = static_cast<ScalarArrayOpExpr*>(node);
    if (!IsA(any, ScalarArrayOpExpr) || !any->useOr || get_opcode(any->opno) != F_CHAREQ ||
        !is_our_column(linitial(any->args), attribute_of(&Record::status)))
        return false;
    auto* list = static_cast<Const*>(lsecond(any->args));
    if (!IsA(list, Const) || list->constisnull || list->consttype != CHARARRAYOID) return false;
    Datum* elements;
    bool* nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(list->constvalue), CHAROID, 1, true, TYPALIGN_CHAR,
                      &elements, &nulls, &count);
    for (const core::StatusEntry& entry : core::kStatuses) {
        bool is_listed = false;
        for (int i = 0; i < count; i++)
            is_listed |= !nulls[i] && DatumGetChar(elements[i]) == static_cast<char>(entry.status);
        if (is_listed != core::is_outstanding(entry.status)) return false;
    }
    return true;
}

// status = 'r'
bool is_due(void* node) {
    auto* equal = static_cast<OpExpr*>(node);
    if (!IsA(equal, OpExpr) || get_opcode(equal->opno) != F_CHAREQ ||
        !is_our_column(linitial(equal->args), attribute_of(&Record::status)))
        return false;
    auto* status = static_cast<Const*>(lsecond(equal->args));
    return IsA(status, Const) && !status->constisnull && status->consttype == CHAROID &&
           DatumGetChar(status->constvalue) == static_cast<char>(core::Status::Retryable);
}

// is_record(status, lease_until), which every record passes. The function is identified by its
// code: its name can be given to another one.
bool is_own_check(const ConstrCheck& check) {
    auto* call = static_cast<FuncExpr*>(stringToNode(check.ccbin));
    if (!IsA(call, FuncExpr) || list_length(call->args) != 2) return false;
    FmgrInfo function;
    fmgr_info(call->funcid, &function);
    return function.fn_addr == idem_is_record &&
           is_our_column(linitial(call->args), attribute_of(&Record::status)) &&
           is_our_column(lsecond(call->args), attribute_of(&Record::lease_until));
}

// ---- indexes ----

// sealed_by IS NOT NULL
bool is_sealed(void* node) {
    auto* test = static_cast<NullTest*>(node);
    return IsA(test, NullTest) && test->nulltesttype == IS_NOT_NULL &&
           is_our_column(test->arg, attribute_of(&Record::sealed_by));
}

bool has_condition(Relation index, bool (*is_ours)(void*)) {
    List* conditions = RelationGetIndexPredicate(index);
    return list_length(conditions) == 1 && is_ours(linitial(conditions));
}

// Then the index can't be unique: a unique index on the key with some rows only would let a second
// row in.
bool has_our_predicate(Relation index) {
    return !index->rd_index->indisunique &&
           (has_condition(index, is_outstanding) || has_condition(index, is_due) ||
            has_condition(index, is_sealed));
}

// An entry is made with the caller's rights, so all functions that the access method may call must
// be the server's.
bool is_plain(Relation index) {
    const FormData_pg_index* form = index->rd_index;
    if (RelationGetIndexExpressions(index) != NIL || form->indisexclusion) return false;
    if (RelationGetIndexPredicate(index) != NIL && !has_our_predicate(index)) return false;
    if (index->rd_rel->relam >= FirstNormalObjectId) return false;
    int functions = pg::support_functions(index) * form->indnkeyatts;
    for (int i = 0; i < functions; i++)
        if (index->rd_support[i] >= FirstNormalObjectId) return false;
    if (!form->indisunique) return true;
    // Unique over the key alone, and immediate.
    if (!form->indimmediate || form->indnkeyatts != kKeyColumns) return false;
    for (int i = 0; i < kKeyColumns; i++)
        if (form->indkey.values[i] != attribute_of(kPrimaryKey[i])) return false;
    return true;
}

// `ready_only`: ignores indexes that are not ready for insertions, which get no entries.
bool has_plain_indexes(Relation table, bool ready_only) {
    List* indexes = RelationGetIndexList(table);
    bool plain = true;
    ListCell* cell;
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        bool skipped = ready_only && !index->rd_index->indisready;
        plain = plain && (skipped || is_plain(index));
        index_close(index, AccessShareLock);
    }
    list_free(indexes);
    return plain;
}

// idempotency.is_record(status, lease_until)
Datum is_record(FunctionCallInfo fcinfo) {
    auto status = static_cast<core::Status>(PG_GETARG_CHAR(0));
    for (const core::StatusEntry& entry : core::kStatuses)
        if (!PG_ARGISNULL(0) && entry.status == status)
            PG_RETURN_BOOL(status != core::Status::InProgress || !PG_ARGISNULL(1));
    PG_RETURN_BOOL(false);
}

}  // namespace

const char* folding_column_of(Relation table) {
    for (auto part : kPrimaryKey) {
        const char* name = column_of(part).name;
        AttrNumber number = get_attnum(RelationGetRelid(table), name);
        if (number == InvalidAttrNumber) continue;
        Oid collation = TupleDescAttr(RelationGetDescr(table), number - 1)->attcollation;
        if (OidIsValid(collation) && !get_collation_isdeterministic(collation)) return name;
    }
    return nullptr;
}

const char* obstacle_of(Relation table, bool at_commit) {
    if (table->rd_rel->relhassubclass && !at_commit) return "It has parent or child tables.";
    if (table->rd_rel->relkind != RELKIND_RELATION) return "It is not an ordinary table.";
    if (table->rd_rel->relam != HEAP_TABLE_AM_OID) return "It has another access method than heap.";
    if (table->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
        return "It is not a logged table.";
    if (table->rd_rel->relispartition) return "It has parent or child tables.";
    if (table->trigdesc != nullptr || table->rd_rel->relhasrules)
        return "It has triggers or rules.";
    if (!has_our_columns(table)) return "Its columns are not those of this version.";
    TupleConstr* constraints = RelationGetDescr(table)->constr;
    for (int i = 0; constraints != nullptr && i < constraints->num_check; i++)
        if (!is_own_check(constraints->check[i])) return "It has check constraints of its own.";
    if (!OidIsValid(pg::primary_key_of(table)) || !has_plain_indexes(table, at_commit))
        return "It has another index than its primary key that is unique, partial, on an "
               "expression, or of an operator class that PostgreSQL does not provide.";
    return nullptr;
}

Rows rows_of(Relation index) {
    if (heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, nullptr)) return Rows::All;
    if (has_condition(index, is_sealed)) return Rows::Sealed;
    return has_condition(index, is_due) ? Rows::Due : Rows::Outstanding;
}

PartialIndexes partial_indexes_of(Relation table) {
    List* indexes = RelationGetIndexList(table);
    PartialIndexes found{InvalidOid, InvalidOid, InvalidOid};
    ListCell* cell;
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        if (has_our_predicate(index)) {
            Rows rows = rows_of(index);
            Oid* place = rows == Rows::Sealed ? &found.sealed
                         : rows == Rows::Due  ? &found.due
                                              : &found.outstanding;
            *place = RelationGetRelid(index);
        }
        index_close(index, AccessShareLock);
    }
    list_free(indexes);
    return found;
}

}  // namespace idem::store

IDEM_FUNCTION(idem_is_record, idem::store::is_record);
