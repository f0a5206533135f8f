#include "store/record.hpp"

namespace idem::store {

namespace {

bool same_text(const text* a, const text* b) {
    return pg::bytes_of(a) == pg::bytes_of(b);
}

std::uint64_t hash_text(const text* value, std::uint64_t seed) {
    std::string_view bytes = pg::bytes_of(value);
    return DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                            static_cast<int>(bytes.size()), seed));
}

template <typename T>
T* copy(const T* value) {
    return static_cast<T*>(pg::copy_varlena(value));
}

}  // namespace

// Each hash seeds the next, so that ('a', 'b') and ('ab', '') differ.
Identity make_identity(text* scope, text* principal, text* key) {
    if (key == nullptr) return {scope, principal, key, 0};
    return {scope, principal, key, hash_text(key, hash_text(principal, hash_text(scope, 0)))};
}

bool same_identity(const Identity& a, const Identity& b) {
    return a.hash == b.hash && same_text(a.key, b.key) && same_text(a.principal, b.principal) &&
           same_text(a.scope, b.scope);
}

Identity copy_identity(const Identity& id) {
    return {copy(id.scope), copy(id.principal), copy(id.key), id.hash};
}

Record copy_record(const Record& record) {
    Record result = record;
    result.id = copy_identity(record.id);
    result.fingerprint = copy(record.fingerprint);
    result.operation = copy(record.operation);
    result.headers = copy(record.headers);
    result.body = copy(record.body);
    result.error = copy(record.error);
    result.recovery_point = copy(record.recovery_point);
    result.state = copy(record.state);
    result.holder = copy(record.holder);
    result.request = copy(record.request);
    result.excluded = copy(record.excluded);
    result.resolved_by = copy(record.resolved_by);
    return result;
}

void free_record(Record* record) {
    void* parts[] = {record->id.scope,    record->id.principal, record->id.key,
                     record->fingerprint, record->operation,    record->headers,
                     record->body,        record->error,        record->recovery_point,
                     record->state,       record->holder,       record->request,
                     record->excluded,    record->resolved_by};
    for (void* part : parts)
        if (part != nullptr) pfree(part);
}

}  // namespace idem::store
