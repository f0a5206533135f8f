#include "store/record.hpp"

#include "core/siphash.hpp"

#include "store/seed.hpp"

namespace idem::store {

namespace {

// ---- a value of a record ----

// The value in a Record for a null of the row.
template <typename Value>
constexpr Value null_of{};
template <>
constexpr TimestampTz null_of<TimestampTz> = pg::kNoTime;

template <typename Value>
Datum datum_of(const Value& value) {
    if constexpr (std::is_pointer_v<Value>)
        return PointerGetDatum(value);
    else if constexpr (std::is_enum_v<Value>)
        return CharGetDatum(static_cast<char>(value));
    else if constexpr (std::is_same_v<Value, bool>)
        return BoolGetDatum(value);
    else if constexpr (std::is_same_v<Value, std::optional<std::int32_t>>)
        return Int32GetDatum(value.value_or(0));
    else if constexpr (std::is_same_v<Value, std::int32_t>)
        return Int32GetDatum(value);
    else
        return Int64GetDatum(value);
}

template <typename Value>
void take(Datum datum, Value* value) {
    if constexpr (std::is_pointer_v<Value>)
        *value = reinterpret_cast<Value>(PG_DETOAST_DATUM_COPY(datum));
    else if constexpr (std::is_enum_v<Value>)
        *value = static_cast<Value>(DatumGetChar(datum));
    else if constexpr (std::is_same_v<Value, bool>)
        *value = DatumGetBool(datum);
    else if constexpr (sizeof(Value) == sizeof(std::int64_t) && std::is_integral_v<Value>)
        *value = DatumGetInt64(datum);
    else
        *value = DatumGetInt32(datum);
}

// ---- all values ----

template <typename AnyRecord, typename Owner, typename Value, Part which>
auto& value_in(AnyRecord& record, const Column<Owner, Value, which>& column) {
    if constexpr (std::is_same_v<Owner, Identity>)
        return record.id.*column.member;
    else if constexpr (which == Part::Plain)
        return (record.*column.member).plain;
    else if constexpr (which == Part::Sealed)
        return (record.*column.member).sealed;
    else
        return record.*column.member;
}

// Calls visit(number, value) for each column. The number is a constant in its type, so the compiler
// makes straight code with each column's place, type and nulls.
template <typename AnyRecord, typename Visit, std::size_t... number>
void visit_columns(AnyRecord& record, Visit visit, std::index_sequence<number...>) {
    (visit(std::integral_constant<std::size_t, number>(),
           value_in(record, std::get<number>(kColumns))),
     ...);
}
template <typename AnyRecord, typename Visit>
void visit_columns(AnyRecord& record, Visit visit) {
    visit_columns(record, visit, std::make_index_sequence<kColumnCount>());
}

// Calls visit(column, value) for each Kept member, with the column of its plain value.
template <typename Visit>
void visit_kept(Record* record, Visit visit) {
    auto visit_plain = [&](const auto& column) {
        if constexpr (part_of(std::decay_t<decltype(column)>{}) == Part::Plain)
            visit(static_cast<const ColumnType&>(column), record->*column.member);
    };
    std::apply([&](const auto&... column) { (visit_plain(column), ...); }, kColumns);
}

// A value known in both forms is written sealed only.
void forget_opened(Record* record) {
    visit_kept(record, [](const ColumnType&, auto& value) {
        if (value.sealed != nullptr) value.plain = nullptr;
    });
}

void to_columns_as_is(const Record& record, Datum* values, bool* nulls) {
    visit_columns(record, [values, nulls](auto number, const auto& value) {
        constexpr bool may_be_null = kColumnTypes[number].may_be_null;
        values[number] = datum_of(value);
        nulls[number] = may_be_null && value == null_of<std::decay_t<decltype(value)>>;
    });
}

}  // namespace

void raise_claim_overtaken() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not record the result because of a concurrent claim"),
                    errdetail("Another transaction has written the record of this key."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

Identity make_identity(text* scope, text* principal, text* key) {
    if (key == nullptr) return {scope, principal, key, 0};
    std::uint64_t hash =
        core::sip_hash(seed(), pg::bytes_of(scope), pg::bytes_of(principal), pg::bytes_of(key));
    return {scope, principal, key, hash};
}

bool same_identity(const Identity& a, const Identity& b) {
    auto same = [](const text* one, const text* other) {
        return pg::bytes_of(one) == pg::bytes_of(other);
    };
    return a.hash == b.hash && same(a.key, b.key) && same(a.principal, b.principal) &&
           same(a.scope, b.scope);
}

void to_columns(const Record& record, Datum* values, bool* nulls) {
    if (record.sealed_by == nullptr) return to_columns_as_is(record, values, nulls);
    Record written = record;
    forget_opened(&written);
    for (const KeptValue& value : kept_values(&written))
        if (value.plain != nullptr)
            elog(ERROR, "idempotency: %s of a sealed record is not sealed", value.column->name);
    to_columns_as_is(written, values, nulls);
}

KeptValues kept_values(Record* record) {
    KeptValues values;
    auto next = values.begin();
    visit_kept(record, [&next](const ColumnType& column, auto& value) {
        *next++ = {&column, value.plain, &value.sealed};
    });
    return values;
}

void from_columns(const Datum* values, const bool* nulls, Record* record) {
    visit_columns(*record, [values, nulls](auto number, auto& value) {
        if constexpr (number < kKeyColumns) return;
        if (kColumnTypes[number].may_be_null && nulls[number])
            value = null_of<std::decay_t<decltype(value)>>;
        else if constexpr (number + 1 == attribute_of(&Record::body))
            // The body is the largest value, and most looks do not need it.
            value = reinterpret_cast<bytea*>(DatumGetPointer(datumCopy(values[number], false, -1)));
        else
            take(values[number], &value);
    });
}

// Opened values do not stay in memory longer than they are used. Everything else is copied: an open
// claim keeps its old row, and restores it when the row in the TOAST table may be gone.
Record copy_record(const Record& record) {
    Record result = record;
    forget_opened(&result);
    visit_columns(result, [](auto, auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_pointer_v<Value>) value = static_cast<Value>(pg::copy_varlena(value));
    });
    return result;
}

void free_record(Record* record) {
    visit_columns(*record, [](auto, auto& value) {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>)
            if (value != nullptr) pfree(value);
    });
}

}  // namespace idem::store
