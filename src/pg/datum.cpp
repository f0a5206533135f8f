#include "pg/datum.hpp"

#include "pg/errors.hpp"

namespace idem::pg {

core::Name name_of(const text* value) {
    std::string_view bytes = bytes_of(value);
    int chars = pg_mbstrlen_with_len(bytes.data(), static_cast<int>(bytes.size()));
    return {bytes, static_cast<std::size_t>(chars), GetDatabaseEncoding() == PG_UTF8};
}

void* copy_varlena(const void* value) {
    if (value == nullptr)
        return nullptr;
    return PG_DETOAST_DATUM_COPY(PointerGetDatum(value));
}

text* jsonb_text(Jsonb* value) {
    StringInfoData out;
    initStringInfo(&out);
    (void)JsonbToCString(&out, &value->root, VARSIZE(value));
    text* result = make_text({out.data, static_cast<std::size_t>(out.len)});
    pfree(out.data);
    return result;
}

Interval* make_interval(std::int64_t micros) {
    auto* result = static_cast<Interval*>(palloc0(sizeof(Interval)));
    result->time = micros;
    return result;
}

TextList text_list(ArrayType* array, const char* what) {
    Datum* elements;
    bool* nulls;
    int count;
    deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
    TextList list{static_cast<std::string_view*>(palloc(sizeof(std::string_view) * (count + 1))),
                  static_cast<std::size_t>(count)};
    for (int i = 0; i < count; i++) {
        if (nulls[i])
            raise_null(what);
        list.items[i] = bytes_of(DatumGetTextPP(elements[i]));
    }
    return list;
}

}  // namespace idem::pg
