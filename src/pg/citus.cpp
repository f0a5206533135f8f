// Read as Citus's own metadata cache reads (BuildCachedShardList, LookupShardPlacements): catalog
// rows by index, with the catalog snapshot, which works in any state of a transaction. For each
// change of these rows Citus sends a relcache invalidation of the table
// (CitusInvalidateRelcacheByRelid in its triggers on pg_dist_shard and pg_dist_placement). So a
// caller may keep the result until the table's next invalidation.

#include "pg/citus.hpp"

#include "pg/owner.hpp"
#include "pg/statements.hpp"

namespace idem::pg {

namespace {

// A catalog of Citus. Its columns are identified by name and type: Citus does not promise their
// order, and a column of another type would be misread.
struct Catalog {
    Relation relation;
    const char* name;
};

[[noreturn]] void raise_unknown(const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("this version of Citus is not supported"), errdetail("%s", detail)));
    pg_unreachable();
}

Catalog open_catalog(const char* name) {
    Oid oid = get_relname_relid(name, PG_CATALOG_NAMESPACE);
    if (!OidIsValid(oid) || get_rel_relkind(oid) != RELKIND_RELATION)
        raise_unknown(psprintf("It has no table %s.", name));
    return {table_open(oid, AccessShareLock), name};
}

void close_catalog(const Catalog& catalog) {
    table_close(catalog.relation, AccessShareLock);
}

AttrNumber column(const Catalog& catalog, const char* name, Oid type) {
    Oid table = RelationGetRelid(catalog.relation);
    AttrNumber number = get_attnum(table, name);
    if (number == InvalidAttrNumber || get_atttype(table, number) != type)
        raise_unknown(psprintf("Its %s has no column %s of type %s.", catalog.name, name,
                               format_type_be(type)));
    return number;
}

// Null is read as zero, where a column may be null.
enum class Null { Refused, Allowed };

Datum value(const Catalog& catalog, HeapTuple row, const char* name, Oid type,
            Null nulls = Null::Refused) {
    bool null;
    Datum datum =
        heap_getattr(row, column(catalog, name, type), RelationGetDescr(catalog.relation), &null);
    if (null && nulls == Null::Refused)
        raise_unknown(psprintf("Its %s has a row without %s.", catalog.name, name));
    return null ? static_cast<Datum>(0) : datum;
}

std::int32_t number(const Catalog& catalog, HeapTuple row, const char* name) {
    return DatumGetInt32(value(catalog, row, name, INT4OID));
}

// The rows with this value in a column: by that index, or by a scan of the whole catalog if there
// is no index of that name.
SysScanDesc scan_for(const Catalog& catalog, const char* index, const ScanKeyData& key) {
    Oid oid = get_relname_relid(index, PG_CATALOG_NAMESPACE);
    bool by_index =
        OidIsValid(oid) && IndexGetRelation(oid, true) == RelationGetRelid(catalog.relation);
    ScanKeyData copy = key;
    return systable_beginscan(catalog.relation, oid, by_index, nullptr, 1, &copy);
}

SysScanDesc scan_of_table(const Catalog& catalog, const char* index, Oid table) {
    ScanKeyData key;
    ScanKeyInit(&key, column(catalog, "logicalrelid", REGCLASSOID), BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(table));
    return scan_for(catalog, index, key);
}

SysScanDesc scan_of_shard(const Catalog& catalog, const char* index, std::int64_t shard) {
    ScanKeyData key;
    ScanKeyInit(&key, column(catalog, "shardid", INT8OID), BTEqualStrategyNumber, F_INT8EQ,
                Int64GetDatum(shard));
    return scan_for(catalog, index, key);
}

// The group of a node that does not know its own, as during pg_upgrade. It has no shard.
constexpr std::int32_t kNoGroup = -1;

std::int32_t local_group() {
    Catalog catalog = open_catalog("pg_dist_local_group");
    SysScanDesc rows = systable_beginscan(catalog.relation, InvalidOid, false, nullptr, 0, nullptr);
    HeapTuple row = systable_getnext(rows);
    std::int32_t group = HeapTupleIsValid(row) ? number(catalog, row, "groupid") : kNoGroup;
    systable_endscan(rows);
    close_catalog(catalog);
    return group;
}

enum class Method { None, ByHash, Other };

// The catalog stores the column as a node tree (Var); its attribute number in the table is
// compared.
bool is_by_column(Datum key, Oid table, const char* wanted) {
    if (key == 0) return false;
    auto* node = static_cast<Node*>(stringToNode(TextDatumGetCString(key)));
    return node != nullptr && IsA(node, Var) &&
           reinterpret_cast<Var*>(node)->varattno == get_attnum(table, wanted);
}

// With repmodel 'c' a shard lies on several nodes, and a write on one would miss the others.
constexpr char kByHash = 'h';
constexpr char kOnOneNode = 's';

Method method_in(const Catalog& catalog, HeapTuple row, Oid table, const char* wanted) {
    char method = DatumGetChar(value(catalog, row, "partmethod", CHAROID));
    char copies = DatumGetChar(value(catalog, row, "repmodel", CHAROID));
    Datum key = value(catalog, row, "partkey", TEXTOID, Null::Allowed);
    bool served = method == kByHash && copies == kOnOneNode && is_by_column(key, table, wanted);
    return served ? Method::ByHash : Method::Other;
}

Method method_of(Oid table, const char* wanted) {
    Catalog catalog = open_catalog("pg_dist_partition");
    SysScanDesc rows = scan_of_table(catalog, "pg_dist_partition_logical_relid_index", table);
    HeapTuple row = systable_getnext(rows);
    Method method = HeapTupleIsValid(row) ? method_in(catalog, row, table, wanted) : Method::None;
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
    SysScanDesc rows = scan_of_shard(placements, "pg_dist_placement_shardid_index", shard->number);
    while (HeapTuple row = systable_getnext(rows)) {
        if (number(placements, row, "groupid") != group ||
            number(placements, row, "shardstate") != kActive)
            continue;
        shard->table = shard_table(table, shard->number);
        shard->came_with = HeapTupleHeaderGetXmin(row->t_data);
    }
    systable_endscan(rows);
}

std::int32_t bound(const Catalog& shards, HeapTuple row, const char* name) {
    return pg_strtoint32(TextDatumGetCString(value(shards, row, name, TEXTOID)));
}

Shard shard_in(const Catalog& shards, HeapTuple row) {
    return {bound(shards, row, "shardminvalue"), bound(shards, row, "shardmaxvalue"),
            DatumGetInt64(value(shards, row, "shardid", INT8OID)), InvalidOid,
            InvalidTransactionId};
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
    SysScanDesc rows = scan_of_table(shards, "pg_dist_shard_logical_relid_index", table);
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

// Relations of a schema by name prefix, by index; the last byte of `prefix` is not 0xFF.
SysScanDesc scan_of_names(Relation catalog, Oid schema, const char* prefix) {
    auto* from = static_cast<Name>(palloc0(sizeof(NameData)));
    auto* until = static_cast<Name>(palloc0(sizeof(NameData)));
    namestrcpy(from, prefix);
    namestrcpy(until, prefix);
    NameStr(*until)[strlen(prefix) - 1]++;
    ScanKeyData keys[3];
    ScanKeyInit(&keys[0], Anum_pg_class_relname, BTGreaterEqualStrategyNumber, F_NAMEGE,
                NameGetDatum(from));
    ScanKeyInit(&keys[1], Anum_pg_class_relname, BTLessStrategyNumber, F_NAMELT,
                NameGetDatum(until));
    ScanKeyInit(&keys[2], Anum_pg_class_relnamespace, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(schema));
    return systable_beginscan(catalog, ClassNameNspIndexId, true, nullptr, 3, keys);
}

bool is_number(const char* word) {
    return *word != '\0' && word[strspn(word, "0123456789")] == '\0';
}

// A shard of the table, found by its name; nullptr: this node has none.
const char* shard_left(Oid table) {
    const char* prefix = psprintf("%s_", get_rel_name(table));
    Relation catalog = table_open(RelationRelationId, AccessShareLock);
    SysScanDesc rows = scan_of_names(catalog, get_rel_namespace(table), prefix);
    const char* found = nullptr;
    while (HeapTuple row = found == nullptr ? systable_getnext(rows) : nullptr) {
        auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(row));
        if (form->relkind == RELKIND_RELATION && is_number(NameStr(form->relname) + strlen(prefix)))
            found = pstrdup(NameStr(form->relname));
    }
    systable_endscan(rows);
    table_close(catalog, AccessShareLock);
    return found;
}

// Citus can take its metadata away from a node (stop_metadata_sync_to_node). It does so for a
// moment when it sends the metadata anew in several transactions (citus.metadata_sync_mode). The
// distributed table stays, as it belongs to an extension, and is empty: a key that runs elsewhere
// would be granted here.
void refuse_without_metadata(Oid table) {
    const char* shard = shard_left(table);
    if (shard != nullptr)
        ereport(ERROR,
                (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                 errmsg("this node has shards of the records but no Citus metadata for them"),
                 errdetail("The name of table \"%s\" is the name of a shard.", shard),
                 errhint("Ask another node until Citus has synchronized its metadata"
                         " (start_metadata_sync_to_node).")));
}

Oid metadata_lock_function() {
    Oid types[] = {INT4OID, INT8ARRAYOID};
    List* name =
        list_make2(makeString(pstrdup("pg_catalog")), makeString(pstrdup("lock_shard_metadata")));
    return LookupFuncName(name, 2, types, false);
}

// Of a row of the query that was just run: success, result.
NodeAnswer answer_in(std::uint64_t row) {
    const char* success = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1);
    return {success != nullptr && *success == 't',
            SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 2)};
}

constexpr const char* kOldestCitus = "13.2";

bool is_named_by_citus(std::string_view prefix) {
    return application_name != nullptr &&
           strncmp(application_name, prefix.data(), prefix.size()) == 0;
}

}  // namespace

bool is_citus_loaded() {
    return GetConfigOption("citus.shard_count", /* missing_ok */ true, false) != nullptr;
}

bool has_citus() {
    return OidIsValid(get_extension_oid("citus", true));
}

const char* address_of_this_node() {
    return ask(
        "SELECT n.nodename OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) n.nodeport"
        " FROM pg_catalog.pg_dist_node n JOIN pg_catalog.pg_dist_local_group g"
        " ON g.groupid OPERATOR(pg_catalog.=) n.groupid"
        " WHERE n.noderole OPERATOR(pg_catalog.=) 'primary'");
}

ClusterNode* active_nodes(int* count) {
    std::uint64_t rows = select(
        "SELECT nodename, nodeport FROM pg_catalog.pg_dist_node"
        " WHERE noderole OPERATOR(pg_catalog.=) 'primary' AND isactive ORDER BY groupid",
        true);
    auto* nodes = static_cast<ClusterNode*>(palloc(sizeof(ClusterNode) * (rows + 1)));
    for (std::uint64_t i = 0; i < rows; i++)
        nodes[i] = {SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1),
                    SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2)};
    *count = static_cast<int>(rows);
    return nodes;
}

NodeAnswer run_on_node(const ClusterNode& node, const char* statement) {
    (void)select(
        psprintf("SELECT success, result"
                 " FROM pg_catalog.master_run_on_worker(ARRAY[%s], ARRAY[%s], ARRAY[%s], false)",
                 quote_literal_cstr(node.host), node.port, quote_literal_cstr(statement)),
        false);
    return answer_in(0);
}

NodeAnswer* run_on_all_nodes(const char* query, int* count) {
    std::uint64_t rows =
        select(psprintf("SELECT success, result FROM pg_catalog.run_command_on_all_nodes(%s)",
                        quote_literal_cstr(query)),
               false);
    auto* answers = static_cast<NodeAnswer*>(palloc(sizeof(NodeAnswer) * (rows + 1)));
    for (std::uint64_t i = 0; i < rows; i++) answers[i] = answer_in(i);
    *count = static_cast<int>(rows);
    return answers;
}

bool is_synchronizing() {
    Catalog nodes = open_catalog("pg_dist_node");
    auto is = [&](HeapTuple row, const char* name) {
        return DatumGetBool(value(nodes, row, name, BOOLOID));
    };
    SysScanDesc rows = systable_beginscan(nodes.relation, InvalidOid, false, nullptr, 0, nullptr);
    bool found = false;
    while (HeapTuple row = found ? nullptr : systable_getnext(rows))
        found = is(row, "isactive") && is(row, "hasmetadata") && !is(row, "metadatasynced");
    systable_endscan(rows);
    close_catalog(nodes);
    return found;
}

Obstacle obstacle_to_distribution() {
    if (!has_citus())
        return {"The extension citus is not installed in this database.",
                "Install it on every node, and run CREATE EXTENSION citus."};
    const char* version =
        ask("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'citus'");
    if (strverscmp(version, kOldestCitus) < 0)
        return {psprintf("Citus %s is too old: %s or later is required.", version, kOldestCitus),
                "Update Citus on every node."};
    if (!holds("(SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group)"))
        return {"This node is not the coordinator.", "Call idem_distribute() on the coordinator."};
    if (holds("EXISTS (SELECT FROM pg_catalog.pg_dist_node)"
              " AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_node WHERE groupid = 0)"))
        return {"Citus does not know the coordinator's address.",
                "Set it with citus_set_coordinator_host()."};
    return {nullptr, nullptr};
}

bool is_table_of_citus(const char* table) {
    return holds(
        psprintf("EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid ="
                 " '%s'::pg_catalog.regclass)",
                 table));
}

const char* distribution_column_of(Oid table) {
    return ask(
        psprintf("SELECT pg_catalog.column_to_column_name(logicalrelid, partkey)"
                 " FROM pg_catalog.pg_dist_partition"
                 " WHERE logicalrelid = %u AND partmethod = 'h' AND repmodel = 's'",
                 table));
}

void distribute_table(const char* table, const char* column, const char* beside) {
    set_locally("citus.shard_replication_factor", "1");
    execute(psprintf("SELECT pg_catalog.create_distributed_table('%s', '%s', colocate_with => %s)",
                     table, column, beside));
    execute(
        psprintf("SELECT pg_catalog.truncate_local_data_after_distributing_table('%s')", table));
}

void distribute_copies(const char* table) {
    set_locally("citus.enable_unsafe_triggers", "on");
    execute(psprintf("SELECT pg_catalog.create_reference_table('%s')", table));
    execute(
        psprintf("SELECT pg_catalog.truncate_local_data_after_distributing_table('%s')", table));
}

void delegate_functions(const char* functions) {
    execute_each(
        psprintf("SELECT pg_catalog.format('SELECT pg_catalog.create_distributed_function(%%L,"
                 " ''principal'', colocate_with => ''idempotency.record'', force_delegation =>"
                 " true)', p.oid::pg_catalog.regprocedure)%s",
                 functions));
}

const char* failure_on_workers(const char* command) {
    return ask(
        psprintf("SELECT nodename || ':' || nodeport || ': ' || result"
                 " FROM pg_catalog.run_command_on_workers(%s)"
                 " WHERE NOT success LIMIT 1",
                 quote_literal_cstr(command)));
}

Distribution distribution_of(Oid table, const char* column, MemoryContext context) {
    Distribution distribution{};
    if (!has_citus()) return distribution;
    Method method = method_of(table, column);
    if (method == Method::None) refuse_without_metadata(table);
    distribution.is_distributed = method != Method::None;
    if (method == Method::ByHash) read_shards(table, context, &distribution);
    return distribution;
}

// As FindShardInterval: the hash is that of the type's default operator class (hashtext). For a
// deterministic collation that is a hash of the bytes.
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

const char* own_copy(const char* table) {
    if (!has_citus()) return nullptr;
    const char* query = psprintf(
        "SELECT s.shardid FROM pg_catalog.pg_dist_shard s"
        " JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid"
        " JOIN pg_catalog.pg_dist_local_group g ON g.groupid = p.groupid"
        " WHERE s.logicalrelid = %u AND p.shardstate = 1",
        table_oid(table));
    if (SPI_execute(query, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "idempotency: a node's copy of %s could not be looked up", table);
    if (SPI_processed == 0) return nullptr;
    return psprintf("%s_%s", table, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
}

// Calls Citus's function: the tag of its lock differs between versions. The function requires the
// table's owner.
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

// The number is 0 until Citus first sends something to a node in a transaction
// (AssignDistributedTransactionId).
bool is_in_transaction_of_citus() {
    List* name = list_make2(makeString(pstrdup("pg_catalog")),
                            makeString(pstrdup("get_current_transaction_id")));
    Datum id = OidFunctionCall0(LookupFuncName(name, 0, nullptr, false));
    bool null;
    Datum number = GetAttributeByName(DatumGetHeapTupleHeader(id), "transaction_number", &null);
    return null || DatumGetInt64(number) != 0;
}

// DetermineCitusBackendType uses the same names.
bool is_session_of_citus() {
    return is_named_by_citus("citus_internal gpid=");
}

bool answers_command_of_citus() {
    return is_named_by_citus("citus_run_command gpid=");
}

void allow_within_tasks() {
    set_locally("citus.allow_nested_distributed_execution", "on");
}

void keep_ddl_to_this_node() {
    if (has_citus()) set_locally("citus.enable_ddl_propagation", "off");
}

}  // namespace idem::pg
