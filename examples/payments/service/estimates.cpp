#include "estimates.hpp"

#include <cstdio>
#include <optional>
#include <regex>

#include <idempotency/problem.hpp>
#include "answers.hpp"
#include "json_body.hpp"

namespace payments {
namespace {

using nlohmann::json;

constexpr std::size_t kMostItems = 1000;
constexpr int kLargestQuantity = 100000;

// "12.5" is 1250.
std::optional<long long> cents(const json& item) {
    const auto price = item.find("price");
    if (price == item.end() || !price->is_string()) return std::nullopt;
    const auto text = price->get<std::string>();
    std::smatch parts;
    static const std::regex decimal("([0-9]{1,8})(?:\\.([0-9]{1,2}))?");
    if (text.size() > 11 || !std::regex_match(text, parts, decimal)) return std::nullopt;
    const std::string fraction = (parts[2].str() + "00").substr(0, 2);
    return std::stoll(parts[1].str()) * 100 + std::stoll(fraction);
}

std::optional<long long> cost(const json& item) {
    if (!item.is_object()) return std::nullopt;
    const auto price = cents(item);
    const json quantity = item.value("quantity", json(1));
    if (!price || !quantity.is_number_integer()) return std::nullopt;
    if (quantity < 0 || quantity > kLargestQuantity) return std::nullopt;
    return *price * quantity.get<long long>();
}

std::optional<long long> sum(const json& items) {
    if (!items.is_array() || items.size() > kMostItems) return std::nullopt;
    long long total = 0;
    for (const auto& item : items) {
        const auto part = cost(item);
        if (!part) return std::nullopt;
        total += *part;
    }
    return total;
}

std::string decimal(long long total) {
    char text[32];
    std::snprintf(text, sizeof(text), "%lld.%02lld", total / 100, total % 100);
    return text;
}

}  // namespace

idempotency::Answer estimate(const idempotency::Exchange& call) {
    const auto body = parse_json(call.request.body);
    const auto total = body.is_object() ? sum(body.value("items", json())) : std::nullopt;
    if (!total) {
        return idempotency::problem(422, "/problems/invalid-request", "Invalid request",
                                    "Send items, each with a price (\"9.90\") and a quantity.");
    }
    return json_response(200, {{"total", decimal(*total)}});
}

}  // namespace payments
