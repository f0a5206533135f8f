// This file derives everything from core::kPolicyColumns: the names in the statements; the
// column types that the table must have; how a value is read, checked and put into a core::Policy.
// Rows may have been written by hand, so each is checked when it is read, by the rules of
// idem_policy_set.

#include "config/policy_table.hpp"

#include "core/pattern.hpp"

#include "config/error_statuses.hpp"
#include "config/settings.hpp"
#include "pg/citus.hpp"
#include "pg/owner.hpp"

namespace idem::config {

namespace {

using core::OptionType;
using core::PolicyColumn;

struct SqlType {
    Oid oid;
    bool is_varlena;
};

constexpr SqlType sql_type_of(OptionType type) {
    switch (type) {
        case OptionType::Pattern:
        case OptionType::Word:
            return {TEXTOID, true};
        case OptionType::Span:
            return {INTERVALOID, false};
        case OptionType::Number:
            return {INT4OID, false};
        case OptionType::List:
            return {TEXTARRAYOID, true};
        case OptionType::Map:
            return {JSONBOID, true};
        case OptionType::Flag:
            return {BOOLOID, false};
        case OptionType::Role:
            return {NAMEOID, false};
        case OptionType::Moment:
            return {TIMESTAMPTZOID, false};
    }
    return {InvalidOid, false};
}

// ---- statements ----

struct RowTypes {
    Oid types[core::kPolicyColumnCount];
};

constexpr RowTypes row_types() {
    RowTypes result{};
    for (int i = 0; i < core::kPolicyColumnCount; i++)
        result.types[i] = sql_type_of(core::kPolicyColumns[i].type).oid;
    return result;
}

constexpr RowTypes kRow = row_types();

// All columns but the pattern, in the order of core::kPolicyColumns.
#define OPTIONS                                                                               \
    "ttl, retention, max_ttl, lease, max_lease, wait, max_attempts, retry_base, retry_cap, "  \
    "retry_jitter, on_missing_key, derive_window, principal_required, fingerprint_required, " \
    "store_request, on_lease_expiry, unknown_retry_after, abandon_after, on_abandon, "        \
    "max_body_bytes, on_large_body, fingerprint_fields, exclude_fields, drop_headers, "       \
    "final_errors, error_statuses, allowed_role, keep_history, encrypt, transactional_only, " \
    "reason_required, max_open_claims, since, memory_before, dropped"
#define OPTION_VALUES                                                                         \
    "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, " \
    "$21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36"

constexpr bool are_the_options(std::string_view names) {
    for (int i = kPattern + 1; i < core::kPolicyColumnCount; i++) {
        std::string_view name = core::kPolicyColumns[i].name;
        if (names.substr(0, name.size()) != name) return false;
        names.remove_prefix(name.size());
        bool is_last = i + 1 == core::kPolicyColumnCount;
        if (is_last ? !names.empty() : names.substr(0, 2) != ", ") return false;
        if (!is_last) names.remove_prefix(2);
    }
    return true;
}
static_assert(are_the_options(OPTIONS));

#define READ_FROM "SELECT scope_pattern, " OPTIONS " FROM idempotency."

pg::Statement read_all = {READ_FROM "policy", 0, nullptr, pg::Access::Whole, nullptr};

// One statement: the row changes at once, and a duplicate cannot stop it.
pg::Statement upsert = {"INSERT INTO idempotency.policy (scope_pattern, " OPTIONS
                        ")"
                        " VALUES ($1, " OPTION_VALUES
                        ")"
                        " ON CONFLICT (scope_pattern) DO UPDATE"
                        " SET (" OPTIONS ") = (" OPTION_VALUES ")",
                        core::kPolicyColumnCount, kRow.types, pg::Access::ByIndex, nullptr};

pg::Statement delete_one = {"DELETE FROM idempotency.policy WHERE scope_pattern = $1", 1,
                            kRow.types, pg::Access::ByIndex, nullptr};

// The options, for later readers of a change.
pg::Statement read_options = {
    "SELECT jsonb_strip_nulls(to_jsonb(p)) - '{scope_pattern,since,memory_before,dropped}'::text[]"
    " FROM idempotency.policy p WHERE p.scope_pattern = $1 AND NOT p.dropped",
    1, kRow.types, pg::Access::ByIndex, nullptr};

// ---- a lock for all nodes ----

// In a table of Citus, a row lock locks the whole table for all nodes
// (SerializeNonCommutativeWrites). Without Citus it locks rows that are locked anyway.
pg::Statement lock_all = {"SELECT scope_pattern FROM idempotency.policy FOR UPDATE", 0, nullptr,
                          pg::Access::Whole, nullptr};

// ---- rows ----

[[noreturn]] void raise_policy_table(int column) {
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("table idempotency.policy cannot be read"),
             errdetail("Its column %s has another type, or is null.",
                       core::kPolicyColumns[column].name),
             errhint("Give the column the type and constraints that CREATE EXTENSION gave it.")));
    pg_unreachable();
}

// The table's owner may change it: a column of another type is an error.
void check_types(TupleDesc desc) {
    for (int i = 0; i < core::kPolicyColumnCount; i++)
        if (TupleDescAttr(desc, i)->atttypid != kRow.types[i]) raise_policy_table(i);
}

void copy_row(HeapTuple tuple, TupleDesc desc, PolicyRow* row) {
    heap_deform_tuple(tuple, desc, row->values, row->nulls);
    for (int column : {kPattern, kDropped})
        if (row->nulls[column]) raise_policy_table(column);
    for (int i = 0; i < core::kPolicyColumnCount; i++) {
        if (row->nulls[i]) continue;
        Form_pg_attribute attribute = TupleDescAttr(desc, i);
        row->values[i] = attribute->attlen == -1
                             ? PointerGetDatum(PG_DETOAST_DATUM_COPY(row->values[i]))
                             : datumCopy(row->values[i], attribute->attbyval, attribute->attlen);
    }
}

// ---- values ----

std::int64_t micros_at(const PolicyRow& row, int column) {
    return pg::micros_of(DatumGetIntervalP(row.values[column]));
}

bool is_pattern(const PolicyRow& row) {
    core::Name pattern = pg::name_of(DatumGetTextPP(row.values[kPattern]));
    return core::check_pattern(pattern.bytes, pattern.chars, pattern.utf8) ==
           core::PatternFault::None;
}

bool is_between(std::int64_t value, const PolicyColumn& column) {
    return value >= column.least && value <= column.most;
}

// Whether the number of elements is within limits, each fits, and none is null.
bool are_all_fit(ArrayType* array, const PolicyColumn& column) {
    if (array_contains_nulls(array)) return false;
    if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) > pg::kMaxListItems) return false;
    if (column.fits == nullptr && column.least == 0) return true;
    pg::TextList words = pg::text_list(array, column.name);
    if (words.count < static_cast<std::size_t>(column.least)) return false;
    if (column.fits == nullptr) return true;
    for (std::size_t i = 0; i < words.count; i++)
        if (!column.fits(words.items[i])) return false;
    return true;
}

// The first column in conflict with another one; core::kPolicyColumnCount: none.
int misfit(const PolicyRow& row) {
    for (const core::SpansInOrder& spans : core::kSpansInOrder)
        if (!row.nulls[spans.shorter] && !row.nulls[spans.longer] &&
            micros_at(row, spans.shorter) > micros_at(row, spans.longer))
            return spans.longer;
    return row.nulls[kSince] != row.nulls[kMemoryBefore] ? kMemoryBefore : core::kPolicyColumnCount;
}

// A value as Policy keeps it.
std::int64_t scalar_at(const PolicyRow& row, int column) {
    Datum value = row.values[column];
    switch (core::kPolicyColumns[column].type) {
        case OptionType::Span:
            return micros_at(row, column);
        case OptionType::Number:
            return DatumGetInt32(value);
        case OptionType::Flag:
            return DatumGetBool(value) ? 1 : 0;
        case OptionType::Word:
            return core::place_of_word(text_at(row, column), core::kPolicyColumns[column].words);
        case OptionType::Pattern:
        case OptionType::List:
        case OptionType::Map:
        case OptionType::Role:
        case OptionType::Moment:
            break;
    }
    return 0;
}

}  // namespace

PolicyRows read_policies(MemoryContext context) {
    pg::AsOwner frame = pg::begin_as_owner(kPolicyTable);
    const char* copy = pg::own_copy(kPolicyTable);
    pg::Statement read_copy = {copy == nullptr ? nullptr : psprintf("%s%s", READ_FROM, copy), 0,
                               nullptr, pg::Access::Whole, nullptr};
    std::uint64_t count = pg::run_read(copy == nullptr ? &read_all : &read_copy, nullptr, nullptr);
    if (copy != nullptr) pg::drop_plan(&read_copy);
    check_types(SPI_tuptable->tupdesc);
    MemoryContext previous = MemoryContextSwitchTo(context);
    PolicyRows result{static_cast<PolicyRow*>(palloc(sizeof(PolicyRow) * (count + 1))), count};
    for (std::uint64_t i = 0; i < count; i++)
        copy_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &result.rows[i]);
    MemoryContextSwitchTo(previous);
    pg::end_as_owner(frame);
    return result;
}

// Another node's change, prepared but not yet committed here, holds a lock of this node's copy.
PolicyRows lock_policies(MemoryContext context) {
    pg::lock_table(kPolicyTable, ShareRowExclusiveLock);
    pg::AsOwner frame = pg::begin_as_owner(kPolicyTable);
    const char* copy = pg::own_copy(kPolicyTable);
    if (copy != nullptr) {
        (void)pg::run_write(&lock_all, nullptr, nullptr);
        pg::lock_table(copy, ShareRowExclusiveLock);
    }
    pg::end_as_owner(frame);
    return read_policies(context);
}

void write_row(PolicyRow* row) {
    char nulls[core::kPolicyColumnCount];
    for (int i = 0; i < core::kPolicyColumnCount; i++) nulls[i] = row->nulls[i] ? 'n' : ' ';
    (void)pg::write_alone(kPolicyTable, &upsert, row->values, nulls);
}

void delete_row(const PolicyRow& row) {
    Datum values[] = {row.values[kPattern]};
    (void)pg::write_alone(kPolicyTable, &delete_one, values, nullptr);
}

// Intervals have one spelling, whatever the session's IntervalStyle.
Jsonb* policy_as_json(text* pattern) {
    Datum values[] = {PointerGetDatum(pattern)};
    pg::AsOwner frame = pg::begin_as_owner(kPolicyTable);
    pg::set_locally("IntervalStyle", "postgres");
    std::uint64_t count = pg::run_read(&read_options, values, nullptr);
    void* options = nullptr;
    if (count > 0) {
        Datum found = pg::first_row().value(1);
        MemoryContext spi_context = MemoryContextSwitchTo(frame.caller_context);
        options = PG_DETOAST_DATUM_COPY(found);
        MemoryContextSwitchTo(spi_context);
    }
    pg::end_as_owner(frame);
    return static_cast<Jsonb*>(options);
}

bool is_varlena(int column) {
    return sql_type_of(core::kPolicyColumns[column].type).is_varlena;
}

bool fits(const PolicyRow& row, int column) {
    const PolicyColumn& ours = core::kPolicyColumns[column];
    if (row.nulls[column]) return true;
    switch (ours.type) {
        case OptionType::Pattern:
            return is_pattern(row);
        case OptionType::Span:
            return core::check_span(micros_at(row, column), ours.range) == core::SpanFault::None;
        case OptionType::Number:
            return is_between(scalar_at(row, column), ours);
        case OptionType::Word:
            return scalar_at(row, column) >= 0;
        case OptionType::List:
            return are_all_fit(DatumGetArrayTypeP(row.values[column]), ours);
        case OptionType::Map:
            return are_error_statuses(DatumGetJsonbP(row.values[column]));
        case OptionType::Flag:
        case OptionType::Role:
        case OptionType::Moment:
            break;
    }
    return true;
}

const char* unusable_column(const PolicyRow& row) {
    for (int column : kCheckOrder.columns) {
        int bad = fits(row, column) ? core::kPolicyColumnCount : column;
        // The last of the spans: now they can be compared.
        if (bad == core::kPolicyColumnCount && column == kMemoryBefore) bad = misfit(row);
        if (bad < core::kPolicyColumnCount) return core::kPolicyColumns[bad].name;
    }
    return nullptr;
}

bool are_out_of_order(const PolicyRow& row, const core::SpansInOrder& spans) {
    bool shorter_open = row.nulls[spans.shorter];
    bool longer_open = row.nulls[spans.longer];
    if (longer_open && spans.follows != core::Follows::Neither) return false;
    if (shorter_open && spans.follows == core::Follows::Either) return false;
    core::Policy held = policy_of(given_in(row));
    return (shorter_open ? held.*spans.shorter_value : micros_at(row, spans.shorter)) >
           (longer_open ? held.*spans.longer_value : micros_at(row, spans.longer));
}

bool is_same(const PolicyRow& row, const PolicyRow& other, int column) {
    if (row.nulls[column] || other.nulls[column]) return row.nulls[column] == other.nulls[column];
    if (core::kPolicyColumns[column].type == OptionType::Span)
        return micros_at(row, column) == micros_at(other, column);
    std::int16_t length;
    bool by_value;
    get_typlenbyval(kRow.types[column], &length, &by_value);
    return datum_image_eq(row.values[column], other.values[column], by_value, length);
}

Given given_in(const PolicyRow& row) {
    Given given{};
    for (int i = 0; i < kOptions; i++)
        if (!row.nulls[i] && core::kPolicyColumns[i].put != nullptr)
            given.options[given.count++] = {i, scalar_at(row, i)};
    return given;
}

core::Policy policy_of(const Given& given) {
    core::Policy policy = default_policy();
    for (int i = 0; i < given.count; i++)
        core::kPolicyColumns[given.options[i].column].put(&policy, given.options[i].value);
    policy.ttl = Min(policy.ttl, policy.max_ttl);
    policy.lease = Min(policy.lease, policy.max_lease);
    return policy;
}

}  // namespace idem::config
