// What is looked for is what the executor would see to beside writing a tuple and its index
// entries: ExecConstraints, ExecBRInsertTriggers and their like, rules, ExecComputeStoredGenerated,
// partition routing, FormIndexDatum of expressions. A table with any of that is no "plain" one.

#include "store/obstacle.hpp"

#include "store/record.hpp"

namespace idem::store {

namespace {

// Of the install script; the values of a record always pass them.
const char* const kOwnChecks[] = {"record_status_known", "record_leased"};

bool is_column(Form_pg_attribute column, const ColumnType& ours) {
    return !column->attisdropped && column->attgenerated == '\0' && column->attidentity == '\0' &&
           column->atttypid == ours.type && strcmp(NameStr(column->attname), ours.name) == 0 &&
           !(column->attnotnull && ours.may_be_null);
}

bool has_our_columns(Relation table) {
    TupleDesc desc = RelationGetDescr(table);
    if (desc->natts != kColumnCount) return false;
    for (int i = 0; i < kColumnCount; i++)
        if (!is_column(TupleDescAttr(desc, i), kColumnTypes[i])) return false;
    return true;
}

bool is_own_check(const ConstrCheck& check) {
    for (const char* own : kOwnChecks)
        if (strcmp(check.ccname, own) == 0) return true;
    return false;
}

bool has_foreign_checks(Relation table) {
    TupleConstr* constraints = RelationGetDescr(table)->constr;
    if (constraints == nullptr) return false;
    for (int i = 0; i < constraints->num_check; i++)
        if (!is_own_check(constraints->check[i])) return true;
    return false;
}

bool is_on_the_key(Relation index) {
    if (index->rd_index->indnkeyatts != kKeyColumns) return false;
    for (int i = 0; i < kKeyColumns; i++)
        if (index->rd_index->indkey.values[i] != attribute_of(kPrimaryKey[i])) return false;
    return true;
}

// Whether all that the access method may call is the server's: an entry is made with the rights of
// whoever calls, and a comparison function of somebody else's must not have them.
bool has_server_functions(Relation index) {
    if (index->rd_rel->relam >= FirstNormalObjectId) return false;
    int count = pg::support_functions(index) * index->rd_index->indnkeyatts;
    for (int i = 0; i < count; i++)
        if (index->rd_support[i] >= FirstNormalObjectId) return false;
    return true;
}

// status = 'i', as the install script has it and a shard's copy of it. Then the index can't be
// unique: an index on the key that knows some rows only would let a second one in.
bool has_our_predicate(Relation index) {
    List* conditions = RelationGetIndexPredicate(index);
    if (index->rd_index->indisunique || list_length(conditions) != 1) return false;
    auto* equals = static_cast<OpExpr*>(linitial(conditions));
    if (!IsA(equals, OpExpr) || equals->opfuncid != F_CHAREQ) return false;
    auto* column = static_cast<Var*>(linitial(equals->args));
    auto* value = static_cast<Const*>(lsecond(equals->args));
    return IsA(column, Var) && column->varattno == attribute_of(&Record::status) &&
           IsA(value, Const) && !value->constisnull &&
           DatumGetChar(value->constvalue) == static_cast<char>(core::Status::InProgress);
}

bool is_plain(Relation index) {
    bool computed = RelationGetIndexExpressions(index) != NIL || index->rd_index->indisexclusion ||
                    (RelationGetIndexPredicate(index) != NIL && !has_our_predicate(index));
    if (computed || !has_server_functions(index)) return false;
    return !index->rd_index->indisunique || (index->rd_index->indimmediate && is_on_the_key(index));
}

// `ready_only`: an index that is not ready for insertions gets none.
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

// What only the executor sees to.
const char* obstacle_to_rows(Relation table, bool at_commit) {
    if (table->rd_rel->relkind != RELKIND_RELATION) return "It is not an ordinary table.";
    if (table->rd_rel->relam != HEAP_TABLE_AM_OID) return "It has another access method than heap.";
    if (table->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
        return "It is not a logged table.";
    if (table->rd_rel->relispartition) return "It has parent or child tables.";
    if (table->trigdesc != nullptr || table->rd_rel->relhasrules)
        return "It has triggers or rules.";
    if (!has_our_columns(table)) return "Its columns are not those of this version.";
    if (has_foreign_checks(table)) return "It has check constraints of its own.";
    if (!OidIsValid(pg::primary_key_of(table)) || !has_plain_indexes(table, at_commit))
        return "It has an index that is unique, partial, on an expression, or of an operator class "
               "that is not the server's, beside its primary key.";
    return nullptr;
}

}  // namespace

const char* obstacle_of(Relation table) {
    if (table->rd_rel->relhassubclass) return "It has parent or child tables.";
    return obstacle_to_rows(table, /* at_commit */ false);
}

const char* obstacle_at_commit_of(Relation table) {
    return obstacle_to_rows(table, /* at_commit */ true);
}

bool has_claims_alone(Relation index) {
    return !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, nullptr);
}

Oid index_of_claims(Relation table) {
    List* indexes = RelationGetIndexList(table);
    Oid found = InvalidOid;
    ListCell* cell;
    foreach (cell, indexes) {
        Relation index = index_open(lfirst_oid(cell), AccessShareLock);
        if (has_our_predicate(index)) found = RelationGetRelid(index);
        index_close(index, AccessShareLock);
    }
    list_free(indexes);
    return found;
}

}  // namespace idem::store
