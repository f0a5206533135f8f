#include "api/arguments.hpp"

#include "core/header.hpp"
#include "core/key.hpp"

#include "pg/jsonb.hpp"

namespace idem::api {

namespace {

constexpr std::size_t kMaxFingerprintBytes = 64;
constexpr std::int32_t kFirstStatusCode = 200;
constexpr std::int32_t kLastStatusCode = 599;
// Of scope, principal and key together. A btree tuple has 2704 bytes for them and its overhead.
constexpr std::size_t kMaxIdentityBytes = 2600;
constexpr std::size_t kMaxReasonChars = 1000;

const char* detail_of(core::NameFault fault, const core::Name& name) {
    switch (fault) {
        case core::NameFault::Empty:
            return "It is empty.";
        case core::NameFault::Blank:
            return "It consists of spaces only.";
        case core::NameFault::TooLong:
            return psprintf("It has %zu characters; %zu are allowed.", name.chars,
                            core::kMaxNameChars);
        case core::NameFault::ControlCharacter:
            return "It contains a control character.";
        case core::NameFault::None:
            break;
    }
    return "";
}

[[noreturn]] void raise_name(const char* what, core::NameFault fault, const core::Name& name) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
             errdetail("%s", detail_of(fault, name)),
             strcmp(what, "key") == 0
                 ? errhint("Send a key that the client made for this one request, such as a UUID.")
                 : errhint("A %s has at most %zu characters and no control characters.", what,
                           core::kMaxNameChars)));
    pg_unreachable();
}

void check_key(const text* key, const char* what) {
    core::Name name = pg::name_of(key);
    core::NameFault fault = core::check_key(name);
    if (fault != core::NameFault::None) raise_name(what, fault, name);
}

[[noreturn]] void raise_headers(const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid headers"),
                    errdetail("%s", detail),
                    errhint("Use an object from header names to strings or arrays of strings.")));
    pg_unreachable();
}

void check_header_value(const JsonbValue& value) {
    if (value.type != jbvString)
        raise_headers("A header's value is not a string or an array of strings.");
    bool utf8 = GetDatabaseEncoding() != PG_SQL_ASCII;
    std::string_view text = pg::string_of(value);
    if (!core::is_header_value(utf8 ? pg::as_utf8(text) : text, utf8))
        raise_headers("A header's value contains a control character.");
}

// Checks the value or values after a header's name.
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

}  // namespace

void raise_null(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what),
                    errhint("Pass a value.")));
    pg_unreachable();
}

void append_word(StringInfo list, std::string_view word) {
    appendStringInfo(list, "%s%.*s", list->len > 0 ? ", " : "", static_cast<int>(word.size()),
                     word.data());
}

void raise_word(const char* what, const char* given, const char* allowed) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: \"%s\"", what, given), errhint("Use one of %s.", allowed)));
    pg_unreachable();
}

void raise_number(const char* what, std::int64_t given, std::int64_t least, std::int64_t most) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: %lld", what, static_cast<long long>(given)),
                    errhint("Use a number from %lld to %lld.", static_cast<long long>(least),
                            static_cast<long long>(most))));
    pg_unreachable();
}

void check_is_trigger(FunctionCallInfo fcinfo) {
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("trigger functions can only be called as triggers")));
}

text* text_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_TEXT_PP(arg);
}

bytea* bytea_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_BYTEA_PP(arg);
}

Jsonb* jsonb_or_null(FunctionCallInfo fcinfo, int arg) {
    return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_JSONB_P(arg);
}

text* label(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg))
        ereport(ERROR,
                (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name),
                 errhint("Omit the argument to get its default.")));
    text* value = PG_GETARG_TEXT_PP(arg);
    core::Name given = pg::name_of(value);
    core::NameFault fault = core::check_label(given);
    if (fault != core::NameFault::None) raise_name(name, fault, given);
    return value;
}

text* required_text(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg)) raise_null(name);
    return PG_GETARG_TEXT_PP(arg);
}

text* required_name(FunctionCallInfo fcinfo, int arg, const char* name) {
    text* value = required_text(fcinfo, arg, name);
    check_key(value, name);
    return value;
}

text* reason_or_null(FunctionCallInfo fcinfo, int arg) {
    text* reason = text_or_null(fcinfo, arg);
    if (reason == nullptr) return nullptr;
    core::Name given = pg::name_of(reason);
    bool too_long = given.chars > kMaxReasonChars;
    if (!too_long && !core::has_control_character(given.bytes, given.utf8)) return reason;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid reason"),
                    too_long ? errdetail("It has %zu characters; %zu are allowed.", given.chars,
                                         kMaxReasonChars)
                             : errdetail("It contains a control character."),
                    errhint("Write the reason in one line.")));
    pg_unreachable();
}

bool bool_or(FunctionCallInfo fcinfo, int arg, bool otherwise) {
    return PG_ARGISNULL(arg) ? otherwise : PG_GETARG_BOOL(arg);
}

std::optional<std::int64_t> bigint_or_none(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    return PG_GETARG_INT64(arg);
}

void check_span(std::int64_t micros, const char* what, core::SpanRange range) {
    core::SpanFault fault = core::check_span(micros, range);
    if (fault == core::SpanFault::None) return;
    const char* detail = fault == core::SpanFault::Negative ? "It is negative."
                         : fault == core::SpanFault::Zero   ? "It is zero."
                                                            : "It is too long.";
    long long days = range.longest / core::kDay;
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail),
                    errhint("Use an interval %s %lld %s.",
                            range.zero_allowed ? "from zero to" : "greater than zero and at most",
                            days, days == 1 ? "day" : "days")));
}

std::optional<std::int64_t> span_or_none(FunctionCallInfo fcinfo, int arg, const char* name,
                                         core::SpanRange range) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    std::int64_t micros = pg::micros_of(PG_GETARG_INTERVAL_P(arg));
    check_span(micros, name, range);
    return micros;
}

std::optional<TimestampTz> moment_or_none(FunctionCallInfo fcinfo, int arg, const char* name) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    TimestampTz moment = PG_GETARG_TIMESTAMPTZ(arg);
    if (TIMESTAMP_NOT_FINITE(moment))
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", name),
                        errdetail("It is infinite."), errhint("Use a finite timestamp.")));
    return moment;
}

store::Identity checked_identity(text* scope, text* principal, text* key) {
    if (key != nullptr) check_key(key, "key");
    // The primary key's index holds no more. The caller learns that here, not at COMMIT.
    std::size_t bytes = pg::bytes_of(scope).size() + pg::bytes_of(principal).size();
    if (key != nullptr) bytes += pg::bytes_of(key).size();
    if (bytes > kMaxIdentityBytes)
        ereport(ERROR,
                (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                 errmsg("key, scope and principal are too long together"),
                 errdetail("They have %zu bytes; %zu are allowed.", bytes, kMaxIdentityBytes),
                 errhint("Use shorter values, or characters of fewer bytes.")));
    return store::make_identity(scope, principal, key);
}

store::Identity identity_or_generated_key(FunctionCallInfo fcinfo, int key, int scope,
                                          int principal) {
    text* given_scope = label(fcinfo, scope, "scope");
    text* given_principal = label(fcinfo, principal, "principal");
    return checked_identity(given_scope, given_principal, text_or_null(fcinfo, key));
}

store::Identity identity(FunctionCallInfo fcinfo, int key, int scope, int principal) {
    (void)required_text(fcinfo, key, "key");
    return identity_or_generated_key(fcinfo, key, scope, principal);
}

bytea* fingerprint_or_null(FunctionCallInfo fcinfo, int arg) {
    bytea* value = bytea_or_null(fcinfo, arg);
    if (value == nullptr) return nullptr;
    std::size_t bytes = pg::bytes_of(value).size();
    if (bytes == 0 || bytes > kMaxFingerprintBytes)
        ereport(ERROR,
                (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid fingerprint"),
                 errdetail("It has %zu bytes; 1 to %zu are allowed.", bytes, kMaxFingerprintBytes),
                 errhint("Use idem_fingerprint(), or a digest of your own.")));
    return value;
}

void check_status_code(std::int32_t code) {
    if (code < kFirstStatusCode || code > kLastStatusCode)
        raise_number("status_code", code, kFirstStatusCode, kLastStatusCode);
}

std::optional<std::int32_t> status_code_or_none(FunctionCallInfo fcinfo, int arg) {
    if (PG_ARGISNULL(arg)) return std::nullopt;
    std::int32_t code = PG_GETARG_INT32(arg);
    check_status_code(code);
    return code;
}

namespace {

void check_headers(Jsonb* headers) {
    if (!JB_ROOT_IS_OBJECT(headers)) raise_headers("It is not a JSON object.");
    auto* names = static_cast<std::string_view*>(MemoryContextAllocHuge(
        CurrentMemoryContext, sizeof(std::string_view) * (JB_ROOT_COUNT(headers) + 1)));
    std::size_t count = 0;
    JsonbIterator* it = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    (void)JsonbIteratorNext(&it, &value, true);
    while (JsonbIteratorNext(&it, &value, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        names[count] = pg::string_of(value);
        if (!core::is_header_name(names[count++])) raise_headers(core::kNoHeaderName);
        check_header_values(&it);
    }
    // HTTP ignores the letter case of header names.
    auto compare_names = [](const void* a, const void* b, void*) {
        return core::compare_headers(*static_cast<const std::string_view*>(a),
                                     *static_cast<const std::string_view*>(b));
    };
    qsort_interruptible(names, count, sizeof(*names), compare_names, nullptr);
    for (std::size_t i = 1; i < count; i++)
        if (core::same_header(names[i - 1], names[i]))
            raise_headers("A header is given twice, in different letter case.");
    pfree(names);
}

}  // namespace

Jsonb* checked_headers(Jsonb* headers) {
    if (headers == nullptr) return nullptr;
    JsonbValue scalar;
    bool is_scalar = JsonbExtractScalar(&headers->root, &scalar);
    if (is_scalar && scalar.type == jbvNull) return nullptr;
    check_headers(headers);
    return headers;
}

Jsonb* headers_or_null(FunctionCallInfo fcinfo, int arg) {
    return checked_headers(jsonb_or_null(fcinfo, arg));
}

}  // namespace idem::api
