#include "config/error_statuses.hpp"

#include "core/sqlstate.hpp"

#include "pg/jsonb.hpp"

namespace idem::config {

namespace {

constexpr std::size_t kClassLength = 2;

// By its digits: 402.5, or a number that no integer holds, is not a status.
std::optional<std::int32_t> status_in(const JsonbValue& value) {
    if (value.type != jbvNumeric) return std::nullopt;
    Datum digits = DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric));
    return core::refusal_status(DatumGetCString(digits));
}

std::optional<std::int32_t> member(Jsonb* map, std::string_view name) {
    JsonbValue found;
    const auto length = static_cast<int>(name.size());
    const JsonbValue* value = getKeyJsonValueFromContainer(&map->root, name.data(), length, &found);
    return value == nullptr ? std::nullopt : status_in(*value);
}

}  // namespace

bool are_error_statuses(Jsonb* map) {
    if (!JB_ROOT_IS_OBJECT(map)) return false;
    JsonbIterator* it = JsonbIteratorInit(&map->root);
    JsonbValue value;
    (void)JsonbIteratorNext(&it, &value, true);
    while (JsonbIteratorNext(&it, &value, true) == WJB_KEY) {
        if (!core::may_be_final(pg::string_of(value))) return false;
        (void)JsonbIteratorNext(&it, &value, true);
        if (!status_in(value)) return false;
    }
    return true;
}

std::optional<std::int32_t> status_of_error(Jsonb* map, std::string_view sqlstate) {
    if (map == nullptr) return std::nullopt;
    std::optional<std::int32_t> status = member(map, sqlstate);
    return status ? status : member(map, sqlstate.substr(0, kClassLength));
}

}  // namespace idem::config
