#include "claim/fingerprint.hpp"

#include "core/fingerprint.hpp"

#include "pg/datum.hpp"
#include "pg/errors.hpp"

namespace idem::claim {

namespace {

// The core reads UTF-8, whatever the database's encoding.
std::optional<std::string_view> utf8_of(const text* value) {
    if (value == nullptr) return std::nullopt;
    return pg::as_utf8(pg::bytes_of(value));
}

std::string_view request_text(Jsonb* request) {
    std::string_view json = pg::as_utf8(pg::bytes_of(pg::jsonb_text(request)));
    if (json.size() > core::kMaxRequestBytes) pg::raise_request_too_large(json.size());
    return json;
}

bool cancel_requested() {
    return InterruptPending;
}

core::FingerprintResult compute(const core::FingerprintInput& input) {
    core::FingerprintResult result = core::fingerprint(input);
    while (result.fault == core::FingerprintFault::Interrupted) {
        CHECK_FOR_INTERRUPTS();
        result = core::fingerprint(input);
    }
    return result;
}

}  // namespace

bytea* fingerprint_of(Jsonb* request, const text* method, const text* path, ArrayType* exclude) {
    if (request == nullptr && method == nullptr && path == nullptr) return nullptr;
    core::FingerprintInput input;
    input.method = utf8_of(method);
    input.path = utf8_of(path);
    if (request != nullptr) input.request = request_text(request);
    if (exclude != nullptr) {
        pg::TextList list = pg::text_list(exclude, "exclude");
        for (std::size_t i = 0; i < list.count; i++) list.items[i] = pg::as_utf8(list.items[i]);
        input.exclude = list.items;
        input.exclude_count = list.count;
    }
    input.interrupted = cancel_requested;
    core::FingerprintResult result = compute(input);
    if (result.fault != core::FingerprintFault::None) pg::raise_fingerprint(result);
    return pg::as_bytea(
        pg::make_text({reinterpret_cast<const char*>(result.digest), core::kFingerprintBytes}));
}

}  // namespace idem::claim
