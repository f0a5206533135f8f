#include "api/arguments.hpp"

#include "core/header.hpp"
#include "core/key.hpp"

#include "pg/errors.hpp"

namespace idem::api {

namespace {

void check_key(const text* key, const char* name) {
    core::Name given = pg::name_of(key);
    core::NameFault fault = core::check_key(given);
    if (fault != core::NameFault::None) pg::raise_name(name, fault, given);
}

text* label(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg)) pg::raise_null_default(name);
    text* value = PG_GETARG_TEXT_PP(arg);
    core::Name given = pg::name_of(value);
    core::NameFault fault = core::check_label(given);
    if (fault != core::NameFault::None) pg::raise_name(name, fault, given);
    return value;
}

// The primary key's index can't hold more, and the caller should not learn that at COMMIT.
void check_size(const store::Identity& id) {
    std::size_t bytes = pg::bytes_of(id.scope).size() + pg::bytes_of(id.principal).size();
    if (id.key != nullptr) bytes += pg::bytes_of(id.key).size();
    if (bytes > kMaxIdentityBytes) pg::raise_identity_size(bytes, kMaxIdentityBytes);
}

std::string_view string_of(const JsonbValue& value) {
    return {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
}

void check_header_name(std::string_view name) {
    if (!core::is_header_name(name))
        pg::raise_headers("A header's name is empty or has characters that HTTP does not allow.");
}

void check_header_value(const JsonbValue& value) {
    if (value.type != jbvString)
        pg::raise_headers("A header's value is neither a string nor an array of strings.");
    bool utf8 = GetDatabaseEncoding() != PG_SQL_ASCII;
    std::string_view text = string_of(value);
    if (!core::is_header_value(utf8 ? pg::as_utf8(text) : text, utf8))
        pg::raise_headers("A header's value contains a control character.");
}

// What follows a header's name.
void check_header_values(JsonbIterator** it) {
    JsonbValue value;
    JsonbIteratorToken token = JsonbIteratorNext(it, &value, true);
    if (token != WJB_VALUE || value.type != jbvBinary) {
        check_header_value(value);
        return;
    }
    JsonbContainer* container = value.val.binary.data;
    if (!JsonContainerIsArray(container)) check_header_value(value);
    JsonbIterator* elements = JsonbIteratorInit(container);
    (void)JsonbIteratorNext(&elements, &value, true);
    while (JsonbIteratorNext(&elements, &value, true) == WJB_ELEM) check_header_value(value);
}

int compare_names(const void* a, const void* b, void*) {
    return core::compare_headers(*static_cast<const std::string_view*>(a),
                                 *static_cast<const std::string_view*>(b));
}

// HTTP takes names that differ in letter case for the same.
void check_distinct(std::string_view* names, std::size_t count) {
    qsort_interruptible(names, count, sizeof(*names), compare_names, nullptr);
    for (std::size_t i = 1; i < count; i++)
        if (core::same_header(names[i - 1], names[i]))
            pg::raise_headers("A header stands twice, in different letter case.");
}

}  // namespace

text* text_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_TEXT_PP(arg);
}

bytea* bytea_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_BYTEA_PP(arg);
}

Jsonb* jsonb_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_JSONB_P(arg);
}

text* required_text(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg)) pg::raise_null(name);
    return PG_GETARG_TEXT_PP(arg);
}

text* required_name(FunctionCallInfo fcinfo, int arg, const char* name) {
    text* value = required_text(fcinfo, arg, name);
    check_key(value, name);
    return value;
}

bool bool_or(FunctionCallInfo fcinfo, int arg, bool otherwise) {
    return PG_ARGISNULL(arg) ? otherwise : PG_GETARG_BOOL(arg);
}

std::optional<std::int64_t> bigint_or_none(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    return PG_GETARG_INT64(arg);
}

std::optional<std::int64_t> duration_or_none(FunctionCallInfo fcinfo, int arg, const char* name,
                                             core::DurationRange range) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    std::int64_t micros = pg::micros_of(PG_GETARG_INTERVAL_P(arg));
    core::DurationFault fault = core::check_duration(micros, range);
    if (fault != core::DurationFault::None) pg::raise_duration(name, fault, range);
    return micros;
}

std::optional<TimestampTz> moment_or_none(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    TimestampTz moment = PG_GETARG_TIMESTAMPTZ(arg);
    if (TIMESTAMP_NOT_FINITE(moment)) pg::raise_not_finite(name);
    return moment;
}

store::Identity identity_or_generated_key(FunctionCallInfo fcinfo, int key, int scope,
                                          int principal) {
    text* given_scope = label(fcinfo, scope, "scope");
    text* given_principal = label(fcinfo, principal, "principal");
    text* given_key = text_or_null(fcinfo, key);
    if (given_key != nullptr) check_key(given_key, "key");
    store::Identity id = store::make_identity(given_scope, given_principal, given_key);
    check_size(id);
    return id;
}

store::Identity identity(FunctionCallInfo fcinfo, int key, int scope, int principal) {
    (void)required_text(fcinfo, key, "key");
    return identity_or_generated_key(fcinfo, key, scope, principal);
}

bytea* fingerprint_or_null(FunctionCallInfo fcinfo, int arg) {
    bytea* value = bytea_or_null(fcinfo, arg);
    if (value == nullptr) return nullptr;
    std::size_t bytes = pg::bytes_of(value).size();
    if (bytes == 0 || bytes > kMaxFingerprintBytes) pg::raise_fingerprint_size(bytes);
    return value;
}

void check_status_code(std::int32_t code) {
    if (code < 200 || code > 599) pg::raise_number("status_code", code, 200, 599);
}

std::optional<std::int32_t> status_code_or_none(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    std::int32_t code = PG_GETARG_INT32(arg);
    check_status_code(code);
    return code;
}

void check_headers(Jsonb* headers) {
    if (!JB_ROOT_IS_OBJECT(headers)) pg::raise_headers("It is not a JSON object.");
    auto* names = static_cast<std::string_view*>(MemoryContextAllocHuge(
        CurrentMemoryContext, sizeof(std::string_view) * (JB_ROOT_COUNT(headers) + 1)));
    std::size_t count = 0;
    JsonbIterator* it = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    (void)JsonbIteratorNext(&it, &value, true);
    while (JsonbIteratorNext(&it, &value, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        names[count] = string_of(value);
        check_header_name(names[count++]);
        check_header_values(&it);
    }
    check_distinct(names, count);
    pfree(names);
}

Jsonb* headers_or_null(FunctionCallInfo fcinfo, int arg) {
    Jsonb* headers = jsonb_or_null(fcinfo, arg);
    if (headers != nullptr) check_headers(headers);
    return headers;
}

}  // namespace idem::api
