#include "store/record.hpp"

#include "core/siphash.hpp"

#include "store/seed.hpp"

namespace idem::store {

namespace {

bool same_text(const text* a, const text* b) {
    return pg::bytes_of(a) == pg::bytes_of(b);
}

// ---- a value of a record ----

// What a null of the row is in a Record.
template <typename Value>
constexpr Value null_of{};
template <>
constexpr TimestampTz null_of<TimestampTz> = pg::kNoTime;

Datum datum_of(bool value) {
    return BoolGetDatum(value);
}
Datum datum_of(std::int32_t value) {
    return Int32GetDatum(value);
}
Datum datum_of(std::optional<std::int32_t> value) {
    return Int32GetDatum(value.value_or(0));
}
Datum datum_of(std::int64_t value) {
    return Int64GetDatum(value);
}
Datum datum_of(core::Status value) {
    return CharGetDatum(static_cast<char>(value));
}
Datum datum_of(core::IfSilent value) {
    return CharGetDatum(static_cast<char>(value));
}
Datum datum_of(const void* value) {
    return PointerGetDatum(value);
}

void take(Datum datum, bool* value) {
    *value = DatumGetBool(datum);
}
void take(Datum datum, std::int32_t* value) {
    *value = DatumGetInt32(datum);
}
void take(Datum datum, std::optional<std::int32_t>* value) {
    *value = DatumGetInt32(datum);
}
void take(Datum datum, std::int64_t* value) {
    *value = DatumGetInt64(datum);
}
void take(Datum datum, core::Status* value) {
    *value = static_cast<core::Status>(DatumGetChar(datum));
}
void take(Datum datum, core::IfSilent* value) {
    *value = static_cast<core::IfSilent>(DatumGetChar(datum));
}
template <typename T>
void take(Datum datum, T** value) {
    *value = reinterpret_cast<T*>(PG_DETOAST_DATUM_COPY(datum));
}

// The largest value, and most looks are about others.
void take_as_stored(Datum datum, bytea** value) {
    *value = reinterpret_cast<bytea*>(DatumGetPointer(datumCopy(datum, false, -1)));
}

template <typename Value>
void copy(Value*) {}
// All of it: an open claim keeps what its row was before, and gives it back when the row in the
// TOAST table may be gone.
template <typename T>
void copy(T** value) {
    *value = static_cast<T*>(pg::copy_varlena(*value));
}

template <typename Value>
void release(Value*) {}
template <typename T>
void release(T** value) {
    if (*value != nullptr) pfree(*value);
}

// ---- all of them ----

template <typename AnyRecord, typename Value>
auto& value_in(AnyRecord& record, const Column<Record, Value>& column) {
    return record.*column.member;
}
template <typename AnyRecord, typename Value>
auto& value_in(AnyRecord& record, const Column<Identity, Value>& column) {
    return record.id.*column.member;
}
template <typename AnyRecord, typename T>
auto& value_in(AnyRecord& record, const Column<Record, Kept<T>, Part::Plain>& column) {
    return (record.*column.member).plain;
}
template <typename AnyRecord, typename T>
auto& value_in(AnyRecord& record, const Column<Record, Kept<T>, Part::Sealed>& column) {
    return (record.*column.member).sealed;
}

// Calls visit(number, value) for each column. The number is a constant in its type, so that the
// compiler makes straight code of it: one that knows each column's place, type and nulls.
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

// Only sealed values are written of what is known in both forms.
void forget_opened(Record* record) {
    visit_kept(*record, [](const ColumnType&, auto& value) {
        if (value.sealed != nullptr) value.plain = nullptr;
    });
}

// Whoever forgets to seal a value writes nothing.
void check_sealed(const Record& record) {
    visit_kept(record, [](const ColumnType& column, const auto& value) {
        if (value.plain != nullptr)
            elog(ERROR, "idempotency: %s of a sealed record is not sealed", column.name);
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
    return a.hash == b.hash && same_text(a.key, b.key) && same_text(a.principal, b.principal) &&
           same_text(a.scope, b.scope);
}

void to_columns(const Record& record, Datum* values, bool* nulls) {
    if (record.sealed_by == nullptr) return to_columns_as_is(record, values, nulls);
    Record written = record;
    forget_opened(&written);
    check_sealed(written);
    to_columns_as_is(written, values, nulls);
}

void from_columns(const Datum* values, const bool* nulls, Record* record) {
    visit_columns(*record, [values, nulls](auto number, auto& value) {
        if constexpr (number < kKeyColumns) return;
        if (kColumnTypes[number].may_be_null && nulls[number])
            value = null_of<std::decay_t<decltype(value)>>;
        else if constexpr (number + 1 == attribute_of(&Record::body))
            take_as_stored(values[number], &value);
        else
            take(values[number], &value);
    });
}

// Nor does what was opened stay in memory for longer than it is in use.
Record copy_record(const Record& record) {
    Record result = record;
    forget_opened(&result);
    visit_columns(result, [](auto, auto& value) { copy(&value); });
    return result;
}

void free_record(Record* record) {
    visit_columns(*record, [](auto, auto& value) { release(&value); });
}

}  // namespace idem::store
