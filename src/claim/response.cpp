#include "claim/response.hpp"

#include "core/header.hpp"

#include "pg/errors.hpp"

namespace idem::claim {

namespace {

pg::TextList default_drop_list() {
    auto* items = const_cast<std::string_view*>(core::kDroppedHeaders);
    return {items, sizeof(core::kDroppedHeaders) / sizeof(core::kDroppedHeaders[0])};
}

bool is_dropped(std::string_view name, const pg::TextList& dropped) {
    for (std::size_t i = 0; i < dropped.count; i++)
        if (core::same_header(name, dropped.items[i])) return true;
    return false;
}

std::string_view key_of(const JsonbValue& value) {
    return {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
}

// The members that stay; values are passed on as they are.
Jsonb* without_dropped(Jsonb* headers, const pg::TextList& dropped) {
    JsonbParseState* state = nullptr;
    JsonbIterator* it = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    (void)pushJsonbValue(&state, JsonbIteratorNext(&it, &value, true), nullptr);
    while (JsonbIteratorNext(&it, &value, true) == WJB_KEY) {
        JsonbValue name = value;
        (void)JsonbIteratorNext(&it, &value, true);
        CHECK_FOR_INTERRUPTS();
        if (is_dropped(key_of(name), dropped)) continue;
        (void)pushJsonbValue(&state, WJB_KEY, &name);
        (void)pushJsonbValue(&state, WJB_VALUE, &value);
    }
    return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
}

}  // namespace

void check_size(const char* what, const void* varlena, const core::Policy& policy) {
    if (varlena == nullptr) return;
    auto bytes = static_cast<std::int64_t>(VARSIZE_ANY_EXHDR(varlena));
    if (bytes > policy.max_body_bytes) pg::raise_too_large(what, bytes, policy.max_body_bytes);
}

void keep_response(const Response& response, const config::ScopePolicy& policy,
                   store::Record* record) {
    record->status_code = response.status_code;
    record->headers = nullptr;
    if (response.headers != nullptr) {
        check_size("headers", response.headers, policy.values);
        record->headers = without_dropped(response.headers,
                                          policy.drop_headers != nullptr
                                              ? pg::text_list(policy.drop_headers, "drop_headers")
                                              : default_drop_list());
    }
    record->body = response.body;
    record->body_omitted =
        response.body != nullptr && policy.values.on_large_body == core::OnLargeBody::Omit &&
        static_cast<std::int64_t>(VARSIZE_ANY_EXHDR(response.body)) > policy.values.max_body_bytes;
    if (record->body_omitted) record->body = nullptr;
    check_size("body", record->body, policy.values);
}

}  // namespace idem::claim
