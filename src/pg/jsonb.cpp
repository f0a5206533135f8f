#include "pg/jsonb.hpp"

#include "core/fingerprint.hpp"

#include "pg/datum.hpp"

namespace idem::pg {

namespace {

JsonbValue string_value(std::string_view text) {
    JsonbValue value{};
    value.type = jbvString;
    value.val.string.val = const_cast<char*>(text.data());
    value.val.string.len = static_cast<int>(text.size());
    return value;
}

JsonbValue number_value(Datum numeric) {
    JsonbValue value{};
    value.type = jbvNumeric;
    value.val.numeric = DatumGetNumeric(numeric);
    return value;
}

// The server unpacks it when it is added.
JsonbValue whole_value(Jsonb* whole) {
    JsonbValue value{};
    value.type = jbvBinary;
    value.val.binary.data = &whole->root;
    value.val.binary.len = static_cast<int>(VARSIZE(whole) - VARHDRSZ);
    return value;
}

void add_value(JsonbObject* object, std::string_view name, JsonbValue value) {
    JsonbValue key = string_value(name);
    add_member(object, &key, &value);
}

// As escape_json() writes it. In each encoding that a database can have, a byte that needs an
// escape is a character by itself.
std::int64_t string_size(const JsonbValue& value) {
    std::string_view rest = string_of(value);
    std::size_t size = 2 + rest.size();
    std::size_t plain;
    while ((plain = core::plain_length(rest)) < rest.size()) {
        size += core::escape_length(rest[plain]) - 1;
        rest.remove_prefix(plain + 1);
    }
    return static_cast<std::int64_t>(size);
}

std::int64_t number_size(const JsonbValue& value) {
    char* digits =
        DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
    auto size = static_cast<std::int64_t>(strlen(digits));
    pfree(digits);
    return size;
}

std::int64_t scalar_size(const JsonbValue& value) {
    switch (value.type) {
        case jbvNull:
            return 4;
        case jbvBool:
            return value.val.boolean ? 4 : 5;
        case jbvString:
            return string_size(value);
        case jbvNumeric:
            return number_size(value);
        default:
            elog(ERROR, "idempotency: unknown jsonb value type %d", static_cast<int>(value.type));
    }
    pg_unreachable();
}

// The length that a token of the iterator adds, without the comma before it.
std::int64_t token_size(JsonbIteratorToken token, const JsonbValue& value) {
    switch (token) {
        case WJB_KEY:
            return string_size(value) + 2;
        case WJB_VALUE:
        case WJB_ELEM:
            return scalar_size(value);
        default:
            return 1;
    }
}

// The format of numeric_send: number of groups, weight of the first, sign, scale, groups.
constexpr int kWeight = 1;
constexpr int kSign = 2;
constexpr int kFirstGroup = 4;
constexpr std::uint16_t kPositive = 0x0000;
constexpr std::uint16_t kNegative = 0x4000;

std::uint16_t sent_number(const bytea* sent, std::size_t index) {
    std::uint16_t number;
    memcpy(&number, VARDATA_ANY(sent) + index * sizeof number, sizeof number);
    return pg_ntoh16(number);
}

}  // namespace

JsonbObject begin_object() {
    JsonbObject object{};
    push_jsonb_value(&object.state, WJB_BEGIN_OBJECT, nullptr);
    return object;
}

void add_member(JsonbObject* object, JsonbValue* name, JsonbValue* value) {
    push_jsonb_value(&object->state, WJB_KEY, name);
    push_jsonb_value(&object->state, WJB_VALUE, value);
}

void add_member(JsonbObject* object, std::string_view name, std::string_view text) {
    add_value(object, name, string_value(text));
}

void add_member(JsonbObject* object, std::string_view name, std::int64_t number) {
    add_value(object, name, number_value(DirectFunctionCall1(int8_numeric, Int64GetDatum(number))));
}

void add_member(JsonbObject* object, std::string_view name, Jsonb* value) {
    add_value(object, name, whole_value(value));
}

void add_flag(JsonbObject* object, std::string_view name, bool value) {
    JsonbValue flag{};
    flag.type = jbvBool;
    flag.val.boolean = value;
    add_value(object, name, flag);
}

void add_seconds(JsonbObject* object, std::string_view name, std::int64_t micros) {
    constexpr int kDecimals = 6;
    Datum seconds = NumericGetDatum(int64_div_fast_to_numeric(micros, kDecimals));
    add_value(object, name, number_value(DirectFunctionCall1(numeric_trim_scale, seconds)));
}

void add_moment(JsonbObject* object, std::string_view name, TimestampTz moment) {
    char* text = JsonEncodeDateTime(nullptr, TimestampTzGetDatum(moment), TIMESTAMPTZOID, nullptr);
    add_value(object, name, string_value(text));
}

Jsonb* end_object(JsonbObject* object) {
    push_jsonb_value(&object->state, WJB_END_OBJECT, nullptr);
    return JsonbValueToJsonb(object->state.result);
}

JsonbArray begin_array() {
    JsonbArray array{};
    push_jsonb_value(&array.state, WJB_BEGIN_ARRAY, nullptr);
    return array;
}

void add_element(JsonbArray* array, Jsonb* value) {
    JsonbValue element = whole_value(value);
    push_jsonb_value(&array->state, WJB_ELEM, &element);
}

void add_element(JsonbArray* array, std::string_view text) {
    JsonbValue element = string_value(text);
    push_jsonb_value(&array->state, WJB_ELEM, &element);
}

Jsonb* end_array(JsonbArray* array) {
    push_jsonb_value(&array->state, WJB_END_ARRAY, nullptr);
    return JsonbValueToJsonb(array->state.result);
}

text* jsonb_text(Jsonb* value) {
    StringInfoData out;
    initStringInfo(&out);
    (void)JsonbToCString(&out, &value->root, VARSIZE(value));
    text* result = make_text({out.data, static_cast<std::size_t>(out.len)});
    pfree(out.data);
    return result;
}

// As JsonbToCString() writes it: ", " between members, ": " behind a name, nothing else.
std::int64_t jsonb_text_size(Jsonb* value) {
    // A scalar is kept as an array of one, whose brackets are not printed.
    std::int64_t size = JB_ROOT_IS_SCALAR(value) ? -2 : 0;
    JsonbIterator* it = JsonbIteratorInit(&value->root);
    JsonbValue part;
    JsonbIteratorToken token;
    bool follows = false;  // a value came before on the same level
    while ((token = JsonbIteratorNext(&it, &part, false)) != WJB_DONE) {
        CHECK_FOR_INTERRUPTS();
        bool ends = token == WJB_END_ARRAY || token == WJB_END_OBJECT;
        if (follows && !ends) size += 2;
        size += token_size(token, part);
        follows = ends || token == WJB_VALUE || token == WJB_ELEM;
    }
    return size;
}

SentNumeric send_numeric(Numeric number) {
    SentNumeric result{};
    result.sent = DatumGetByteaPP(DirectFunctionCall1(numeric_send, NumericGetDatum(number)));
    result.groups = sent_number(result.sent, 0);
    std::uint16_t sign = sent_number(result.sent, kSign);
    result.finite = sign == kPositive || sign == kNegative;
    result.negative = sign == kNegative;
    auto weight = static_cast<std::int16_t>(sent_number(result.sent, kWeight));
    result.exponent = static_cast<std::int64_t>(kDigitsInGroup) * (weight + 1) - 1;
    return result;
}

void write_digits(const SentNumeric& number, char* out) {
    for (std::size_t i = 0; i < number.groups; i++) {
        std::uint16_t group = sent_number(number.sent, kFirstGroup + i);
        for (std::size_t digit = kDigitsInGroup; digit-- > 0; group /= 10)
            out[i * kDigitsInGroup + digit] = static_cast<char>('0' + group % 10);
    }
}

}  // namespace idem::pg
