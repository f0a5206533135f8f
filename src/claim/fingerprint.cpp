#include "claim/fingerprint.hpp"

#include "core/fingerprint.hpp"

#include "claim/canonical.hpp"
#include "pg/datum.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

// What is hashed is UTF-8, whatever the database's encoding.
std::optional<std::string_view> utf8_of(const text* value) {
    if (value == nullptr) return std::nullopt;
    return pg::as_utf8(pg::bytes_of(value));
}

}  // namespace

core::Excludes excludes_of(ArrayType* exclude, const char* what) {
    if (exclude == nullptr) return {};
    pg::TextList list = pg::text_list(exclude, what);
    for (std::size_t i = 0; i < list.count; i++) {
        CHECK_FOR_INTERRUPTS();
        list.items[i] = pg::as_utf8(list.items[i]);
        if (!core::valid_exclude(list.items[i])) pg::raise_exclude(i);
    }
    return core::sort_excludes(list.items, list.count);
}

bytea* fingerprint_of(Jsonb* request, const text* method, const text* path, ArrayType* exclude) {
    if (request == nullptr && method == nullptr && path == nullptr) return nullptr;
    core::FingerprintInput input;
    input.method = utf8_of(method);
    input.path = utf8_of(path);
    core::Excludes excludes = excludes_of(exclude, "exclude");
    if (request != nullptr) input.request = canonical_form(request, excludes);
    unsigned char digest[core::kFingerprintBytes];
    if (!core::fingerprint(input, digest)) pg::raise_digest();
    if (input.request) pfree(const_cast<char*>(input.request->data()));
    return pg::as_bytea(
        pg::make_text({reinterpret_cast<const char*>(digest), core::kFingerprintBytes}));
}

}  // namespace idem::claim
