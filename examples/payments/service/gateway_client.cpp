#include "gateway_client.hpp"

#include <httplib.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace payments {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTimeout{2};
constexpr std::chrono::seconds kAnswerTimeout{30};

std::optional<GatewayAnswer> understood(const httplib::Result& result) {
    if (!result) return std::nullopt;
    if (result->status == 402) return GatewayAnswer{true, ""};
    const auto charge = json::parse(result->body, nullptr, false);
    if (result->status != 201 || !charge.is_object()) return std::nullopt;
    return GatewayAnswer{false, charge.value("id", "")};
}

}  // namespace

// A client for each call: they are cheap, and not made for several threads.
std::optional<GatewayAnswer> GatewayClient::charge(const std::string& key, const Money& amount,
                                                   const std::string& reference,
                                                   const std::string& card) const {
    httplib::Client client(url_);
    client.set_connection_timeout(kConnectTimeout);
    client.set_read_timeout(kAnswerTimeout);
    const json order = {{"amount", amount.value},
                        {"currency", amount.currency},
                        {"reference", reference},
                        {"card", card}};
    const httplib::Headers headers = {{"Idempotency-Key", json(key).dump()}};
    return understood(client.Post("/charges", headers, order.dump(), "application/json"));
}

}  // namespace payments
