#include "pg/datum.hpp"

namespace idem::pg {

namespace {

bool is_ascii(std::string_view bytes) {
    for (char c : bytes)
        if (IS_HIGHBIT_SET(c)) return false;
    return true;
}

}  // namespace

// As UTF-8 where possible: control characters are recognised by code point.
core::Name name_of(const text* value) {
    std::string_view bytes = bytes_of(value);
    auto chars = static_cast<std::size_t>(
        pg_mbstrlen_with_len(bytes.data(), static_cast<int>(bytes.size())));
    if (GetDatabaseEncoding() == PG_SQL_ASCII) return {bytes, chars, false};
    return {as_utf8(bytes), chars, true};
}

// Looking a conversion up costs more than most texts that need none. Each encoding that a database
// can have contains ASCII.
std::string_view as_utf8(std::string_view bytes) {
    if (GetDatabaseEncoding() == PG_UTF8 || is_ascii(bytes)) return bytes;
    char* converted = pg_server_to_any(bytes.data(), static_cast<int>(bytes.size()), PG_UTF8);
    if (converted == bytes.data()) return bytes;
    return {converted, strlen(converted)};
}

void* copy_varlena(const void* value) {
    if (value == nullptr) return nullptr;
    return PG_DETOAST_DATUM_COPY(PointerGetDatum(value));
}

Interval* make_interval(std::int64_t micros) {
    auto* result = static_cast<Interval*>(palloc0(sizeof(Interval)));
    result->time = micros;
    return result;
}

Interval* interval_in_days(std::int64_t micros) {
    Interval* result = make_interval(micros % core::kDay);
    result->day = static_cast<std::int32_t>(micros / core::kDay);
    return result;
}

std::int64_t micros_of(const Interval* span) {
    return core::interval_micros(span->month, span->day, span->time);
}

TextList text_list(ArrayType* array, const char* what, const char* hint_if_too_many) {
    int items = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
    if (items > kMaxListItems)
        ereport(ERROR,
                (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many elements in %s", what),
                 errdetail("There are %d; %d are allowed.", items, kMaxListItems),
                 hint_if_too_many ? errhint("%s", hint_if_too_many) : 0));
    Datum* elements;
    bool* nulls;
    int count;
    deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
    TextList list{static_cast<std::string_view*>(palloc(sizeof(std::string_view) * (count + 1))),
                  static_cast<std::size_t>(count)};
    for (int i = 0; i < count; i++) {
        CHECK_FOR_INTERRUPTS();
        if (nulls[i])
            ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("invalid %s", what),
                            errdetail("One of its elements is null."),
                            errhint("Remove it, or use an empty string.")));
        list.items[i] = bytes_of(DatumGetTextPP(elements[i]));
    }
    return list;
}

}  // namespace idem::pg
