#include "fields.hpp"

#include <regex>

#include <idempotency/problem.hpp>

namespace payments {
namespace {

constexpr char kDecimal[] = "[0-9]{1,12}(\\.[0-9]{1,4})?";
constexpr char kCurrency[] = "[A-Z]{3}";
constexpr std::size_t kLongestText = 2000;

}  // namespace

nlohmann::json to_json(const Money& money) {
    return {{"value", money.value}, {"currency", money.currency}};
}

Fields::Fields(const nlohmann::json& body)
    : body_(body.is_object() ? body : nlohmann::json::object()) {
    if (!body.is_object()) fault_ = "The body is not an object.";
}

std::string Fields::text(const std::string& name) {
    const std::string value = text(name, "");
    if (value.empty()) blame(name, "is missing or empty");
    return value;
}

std::string Fields::text(const std::string& name, const std::string& otherwise) {
    if (!has(name)) return otherwise;
    const auto& value = body_[name];
    if (!value.is_string()) {
        blame(name, "is not a string");
    } else if (value.get_ref<const std::string&>().size() > kLongestText) {
        blame(name, "is too long");
    }
    return faulty() ? otherwise : value.get<std::string>();
}

// A decimal string: a JSON number would pass through a binary fraction.
Money Fields::money(const std::string& name) {
    const auto object = body_.find(name);
    if (object == body_.end() || !object->is_object()) {
        blame(name, "is not an object of value and currency");
        return {};
    }
    Money money{matching(*object, "value", kDecimal), matching(*object, "currency", kCurrency)};
    if (money.value.find_first_of("123456789") == std::string::npos) {
        blame(name, "is not more than nothing");
    }
    return money;
}

std::string Fields::matching(const nlohmann::json& object, const char* name, const char* pattern) {
    const auto found = object.find(name);
    if (found != object.end() && found->is_string()) {
        auto value = found->get<std::string>();
        // A regex recurses with the length of its text, so the length is checked first.
        if (value.size() < 20 && std::regex_match(value, std::regex(pattern))) return value;
    }
    blame(name, "is missing or malformed");
    return "";
}

idempotency::Answer Fields::refusal() const {
    return idempotency::problem(422, "/problems/invalid-request", "Invalid request", fault_);
}

void Fields::blame(const std::string& name, const char* what) {
    if (!faulty()) fault_ = "'" + name + "' " + what + ".";
}

}  // namespace payments
