// Abandoned claims are few among many records, and an index on what is in progress would make each
// end of a leased claim dearer: the update could not be HOT. So they are looked for where they lie,
// by ranges of ctid, which the server reads as it reads a small table. What is not a plain table
// has no such ranges and is read as a whole.

#include "store/overdue.hpp"

#include "pg/owner.hpp"
#include "store/record_table.hpp"

namespace idem::store {

namespace {

constexpr Oid kUntil[] = {TIMESTAMPTZOID};

// The walk goes by OID, so that it goes on behind a table that has gone. InvalidOid: there is none.
Oid first_table_from(Oid least) {
    int count;
    RecordTable* tables = local_tables(&count);
    Oid first = InvalidOid;
    for (int i = 0; i < count; i++)
        if (tables[i].table >= least && (!OidIsValid(first) || tables[i].table < first))
            first = tables[i].table;
    return first;
}

// 0: it has no blocks, or none that can be told apart from here.
BlockNumber blocks_of(Oid table) {
    Relation relation = try_relation_open(table, AccessShareLock);
    if (relation == nullptr) return 0;
    BlockNumber blocks =
        relation->rd_rel->relkind == RELKIND_RELATION ? RelationGetNumberOfBlocks(relation) : 0;
    relation_close(relation, NoLock);
    return blocks;
}

// Of a plain table that part, else all of it.
const char* query_for(const WalkPosition& from, BlockNumber end, int limit) {
    bool is_plain = get_rel_relkind(from.table) == RELKIND_RELATION;
    const char* part = psprintf(
        " AND ctid OPERATOR(pg_catalog.>) '(%u,%u)'::pg_catalog.tid"
        " AND ctid OPERATOR(pg_catalog.<) '(%u,0)'::pg_catalog.tid ORDER BY ctid",
        from.block, from.row, end);
    return psprintf(
        "SELECT scope, principal, key, %s FROM %s"
        " WHERE status OPERATOR(pg_catalog.=) '%c'::pg_catalog.\"char\""
        " AND lease_until OPERATOR(pg_catalog.<=) $1%s LIMIT %d",
        is_plain ? "ctid" : "NULL::pg_catalog.tid",
        quote_qualified_identifier(get_namespace_name(get_rel_namespace(from.table)),
                                   get_rel_name(from.table)),
        static_cast<char>(core::Status::InProgress), is_plain ? part : "", limit);
}

text* text_in(HeapTuple row, int column) {
    bool null;
    Datum value = SPI_getbinval(row, SPI_tuptable->tupdesc, column, &null);
    return DatumGetTextPCopy(value);
}

// In the caller's context, and where the last of them lies.
void take_rows(MemoryContext context, Overdue* found, WalkPosition* last) {
    MemoryContext previous = MemoryContextSwitchTo(context);
    for (int i = 0; i < found->count; i++) {
        HeapTuple row = SPI_tuptable->vals[i];
        found->claims[i] = make_identity(text_in(row, 1), text_in(row, 2), text_in(row, 3));
        bool null;
        Datum place = SPI_getbinval(row, SPI_tuptable->tupdesc, 4, &null);
        if (null) continue;
        last->block =
            ItemPointerGetBlockNumberNoCheck(reinterpret_cast<ItemPointer>(DatumGetPointer(place)));
        last->row = ItemPointerGetOffsetNumberNoCheck(
            reinterpret_cast<ItemPointer>(DatumGetPointer(place)));
    }
    MemoryContextSwitchTo(previous);
}

// Moves `from` to the last of them.
void read_slice(WalkPosition* from, BlockNumber end, TimestampTz until, int limit, Overdue* found) {
    pg::Statement statement = {query_for(*from, end, limit), std::size(kUntil), kUntil,
                               pg::Access::ByIndex, nullptr};
    Datum values[] = {TimestampTzGetDatum(until)};
    pg::AsOwner frame = pg::begin_as_owner(kRecordTable);
    found->count = static_cast<int>(pg::run_read(&statement, values, nullptr));
    take_rows(frame.caller_context, found, from);
    pg::drop_plan(&statement);
    pg::end_as_owner(frame);
}

}  // namespace

Overdue find_overdue(WalkPosition* from, BlockNumber blocks, TimestampTz until, int limit) {
    Overdue found{static_cast<Identity*>(palloc(sizeof(Identity) * (limit + 1))), 0, false};
    Oid table = first_table_from(from->table);
    if (table != from->table) *from = WalkPosition{table, 0, 0};
    if (OidIsValid(table)) {
        BlockNumber last = blocks_of(table);
        BlockNumber end = last - Min(from->block, last) > blocks ? from->block + blocks : last;
        if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table)))
            read_slice(from, end, until, limit, &found);
        if (found.count == limit && last > 0) return found;
        *from = end < last ? WalkPosition{table, end, 0}
                           : WalkPosition{first_table_from(table + 1), 0, 0};
    }
    found.at_end = !OidIsValid(from->table);
    return found;
}

}  // namespace idem::store
