// Read as Citus's own metadata cache reads them (BuildCachedShardList, LookupShardPlacements): rows
// of the catalogs by index, with the catalog snapshot, so that it can be done in any state of a
// transaction. Citus sends a relcache invalidation of the table for each change of these rows
// (CitusInvalidateRelcacheByRelid in its triggers on pg_dist_shard and pg_dist_placement), so
// whoever keeps what is read here keeps it as long as the table stays as it is.

#include "store/distribution.hpp"

namespace idem::store {

namespace {

// A catalog of Citus and its columns, by name: the order of columns is nobody's promise.
struct Catalog {
    Relation relation;
    const char* name;
};

Oid object_of_citus(const char* name) {
    Oid oid = get_relname_relid(name, PG_CATALOG_NAMESPACE);
    if (!OidIsValid(oid))
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("this version of Citus is not supported"),
                        errdetail("It has no %s.", name)));
    return oid;
}

Catalog open_catalog(const char* name) {
    return {table_open(object_of_citus(name), AccessShareLock), name};
}

void close_catalog(const Catalog& catalog) {
    table_close(catalog.relation, AccessShareLock);
}

AttrNumber column(const Catalog& catalog, const char* name) {
    AttrNumber number = get_attnum(RelationGetRelid(catalog.relation), name);
    if (number == InvalidAttrNumber)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("this version of Citus is not supported"),
                        errdetail("Its %s has no column %s.", catalog.name, name)));
    return number;
}

// Null is zero.
Datum value(const Catalog& catalog, HeapTuple row, const char* name) {
    bool null;
    Datum datum =
        heap_getattr(row, column(catalog, name), RelationGetDescr(catalog.relation), &null);
    return null ? static_cast<Datum>(0) : datum;
}

// The rows in which a column has a value, by index; all of them without a column.
SysScanDesc scan(const Catalog& catalog, const char* index, const char* key_column,
                 RegProcedure equal, Datum wanted) {
    ScanKeyData key;
    if (key_column != nullptr)
        ScanKeyInit(&key, column(catalog, key_column), BTEqualStrategyNumber, equal, wanted);
    bool by_index = key_column != nullptr;
    return systable_beginscan(catalog.relation, by_index ? object_of_citus(index) : InvalidOid,
                              by_index, nullptr, by_index ? 1 : 0, &key);
}

std::int32_t local_group() {
    Catalog catalog = open_catalog("pg_dist_local_group");
    SysScanDesc rows = scan(catalog, nullptr, nullptr, InvalidOid, 0);
    HeapTuple row = systable_getnext(rows);
    std::int32_t group = HeapTupleIsValid(row) ? DatumGetInt32(value(catalog, row, "groupid")) : 0;
    systable_endscan(rows);
    close_catalog(catalog);
    return group;
}

enum class Method { None, ByHash, Other };

// The column stands in pg_dist_partition as a node tree (Var), whose number in the table counts.
Method method_of(Oid table, const char* wanted) {
    Catalog catalog = open_catalog("pg_dist_partition");
    SysScanDesc rows = scan(catalog, "pg_dist_partition_logical_relid_index", "logicalrelid",
                            F_OIDEQ, ObjectIdGetDatum(table));
    HeapTuple row = systable_getnext(rows);
    Method method = Method::None;
    if (HeapTupleIsValid(row)) {
        method = Method::Other;
        Datum key = value(catalog, row, "partkey");
        if (DatumGetChar(value(catalog, row, "partmethod")) == 'h' && key != 0) {
            auto* var = static_cast<Var*>(stringToNode(TextDatumGetCString(key)));
            if (IsA(var, Var) && var->varattno == get_attnum(table, wanted))
                method = Method::ByHash;
        }
    }
    systable_endscan(rows);
    close_catalog(catalog);
    return method;
}

// AppendShardIdToName
Oid shard_table(Oid table, std::int64_t number) {
    const char* name = psprintf("%s_%lld", get_rel_name(table), static_cast<long long>(number));
    return get_relname_relid(name, get_rel_namespace(table));
}

// Only active placements count: tables of the same name may be targets of a move, or orphans.
constexpr std::int32_t kActive = 1;

void find_placement(const Catalog& placements, Oid table, std::int32_t group, Shard* shard) {
    SysScanDesc rows = scan(placements, "pg_dist_placement_shardid_index", "shardid", F_INT8EQ,
                            Int64GetDatum(shard->number));
    while (HeapTuple row = systable_getnext(rows)) {
        if (DatumGetInt32(value(placements, row, "groupid")) != group ||
            DatumGetInt32(value(placements, row, "shardstate")) != kActive)
            continue;
        shard->table = shard_table(table, shard->number);
        shard->came_with = HeapTupleHeaderGetXmin(row->t_data);
    }
    systable_endscan(rows);
}

std::int32_t bound(const Catalog& shards, HeapTuple row, const char* name) {
    Datum number = value(shards, row, name);
    return number == 0 ? 0 : pg_strtoint32(TextDatumGetCString(number));
}

Shard shard_in(const Catalog& shards, HeapTuple row) {
    return {bound(shards, row, "shardminvalue"), bound(shards, row, "shardmaxvalue"),
            DatumGetInt64(value(shards, row, "shardid")), InvalidOid, InvalidTransactionId};
}

int by_hash(const void* a, const void* b) {
    std::int32_t left = static_cast<const Shard*>(a)->first;
    std::int32_t right = static_cast<const Shard*>(b)->first;
    return left < right ? -1 : left > right;
}

void add_shard(Distribution* distribution, const Shard& shard, MemoryContext context) {
    constexpr int kStep = 64;
    Size size = sizeof(Shard) * static_cast<Size>(distribution->count + kStep);
    if (distribution->shards == nullptr)
        distribution->shards = static_cast<Shard*>(MemoryContextAlloc(context, size));
    else if (distribution->count % kStep == 0)
        distribution->shards = static_cast<Shard*>(repalloc(distribution->shards, size));
    distribution->shards[distribution->count++] = shard;
}

void read_shards(Oid table, MemoryContext context, Distribution* distribution) {
    std::int32_t group = local_group();
    Catalog shards = open_catalog("pg_dist_shard");
    Catalog placements = open_catalog("pg_dist_placement");
    SysScanDesc rows = scan(shards, "pg_dist_shard_logical_relid_index", "logicalrelid", F_OIDEQ,
                            ObjectIdGetDatum(table));
    while (HeapTuple row = systable_getnext(rows)) {
        Shard shard = shard_in(shards, row);
        find_placement(placements, table, group, &shard);
        add_shard(distribution, shard, context);
    }
    systable_endscan(rows);
    close_catalog(placements);
    close_catalog(shards);
    qsort(distribution->shards, static_cast<std::size_t>(distribution->count), sizeof(Shard),
          by_hash);
}

Oid metadata_lock_function() {
    Oid types[] = {INT4OID, INT8ARRAYOID};
    List* name =
        list_make2(makeString(pstrdup("pg_catalog")), makeString(pstrdup("lock_shard_metadata")));
    return LookupFuncName(name, 2, types, false);
}

}  // namespace

Distribution distribution_of(Oid table, const char* column, MemoryContext context) {
    Distribution distribution{};
    if (!OidIsValid(get_extension_oid("citus", true))) return distribution;
    Method method = method_of(table, column);
    distribution.is_distributed = method != Method::None;
    if (method == Method::ByHash) read_shards(table, context, &distribution);
    return distribution;
}

// FindShardInterval: the hash is that of the type's default operator class (hashtext), which for a
// deterministic collation is one of the bytes.
const Shard* shard_of(const Distribution& distribution, const text* value) {
    auto hash = DatumGetInt32(hash_any(reinterpret_cast<const unsigned char*>(VARDATA_ANY(value)),
                                       static_cast<int>(VARSIZE_ANY_EXHDR(value))));
    int low = 0;
    int high = distribution.count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const Shard& shard = distribution.shards[middle];
        if (hash < shard.first)
            high = middle;
        else if (hash > shard.last)
            low = middle + 1;
        else
            return &shard;
    }
    return nullptr;
}

// By Citus's function and not by its lock's tag, which differs from version to version. It asks for
// the owner of the table.
void lock_in_place(std::int64_t shard, Oid owner) {
    Oid user;
    int security_context;
    Datum number = Int64GetDatum(shard);
    ArrayType* numbers = construct_array(&number, 1, INT8OID, sizeof(std::int64_t), FLOAT8PASSBYVAL,
                                         TYPALIGN_DOUBLE);
    GetUserIdAndSecContext(&user, &security_context);
    SetUserIdAndSecContext(
        owner, security_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
    (void)OidFunctionCall2(metadata_lock_function(), Int32GetDatum(ShareLock),
                           PointerGetDatum(numbers));
    SetUserIdAndSecContext(user, security_context);
    pfree(numbers);
}

// Its number is 0 until Citus sends something to a node for the first time in a transaction
// (AssignDistributedTransactionId).
bool is_in_transaction_of_citus() {
    List* name = list_make2(makeString(pstrdup("pg_catalog")),
                            makeString(pstrdup("get_current_transaction_id")));
    Datum id = OidFunctionCall0(LookupFuncName(name, 0, nullptr, false));
    bool null;
    Datum number = GetAttributeByName(DatumGetHeapTupleHeader(id), "transaction_number", &null);
    return null || DatumGetInt64(number) != 0;
}

// DetermineCitusBackendType tells them by the same name.
bool is_session_of_citus() {
    constexpr std::string_view kPrefix = "citus_internal gpid=";
    return application_name != nullptr &&
           strncmp(application_name, kPrefix.data(), kPrefix.size()) == 0;
}

}  // namespace idem::store
