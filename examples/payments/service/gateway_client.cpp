#include "gateway_client.hpp"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace payments {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTimeout{2};
constexpr std::chrono::seconds kAnswerTimeout{30};

constexpr std::size_t kLongestId = 200;

// An answer that could not be given again to the client, or looked up at the gateway, is none.
bool is_id(const json& id) {
    if (!id.is_string()) return false;
    const auto& text = id.get_ref<const std::string&>();
    const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
    return !text.empty() && text.size() <= kLongestId &&
           std::all_of(text.begin(), text.end(), is_visible);
}

std::optional<GatewayAnswer> charged(const std::string& body, const Money& amount) {
    const auto charge = json::parse(body, nullptr, /* allow_exceptions */ false);
    if (!charge.is_object() || !is_id(charge.value("id", json()))) return std::nullopt;
    const bool ours = charge.value("amount", json()) == amount.value &&
                      charge.value("currency", json()) == amount.currency;
    if (!ours) return std::nullopt;
    return GatewayAnswer{GatewayAnswer::Charged, charge["id"].get<std::string>()};
}

// Refusals that say "later", or that whoever runs this service has to mend: the same request may
// succeed then.
bool says_later(int status) {
    return status == 401 || status == 403 || status == 408 || status == 409 || status == 425 ||
           status == 429;
}

std::optional<GatewayAnswer> understood(const httplib::Result& result, const Money& amount) {
    if (!result || says_later(result->status)) return std::nullopt;
    if (result->status == 201) return charged(result->body, amount);
    if (result->status == 402) return GatewayAnswer{GatewayAnswer::Declined, ""};
    if (result->status >= 400 && result->status < 500) {
        return GatewayAnswer{GatewayAnswer::Refused, ""};
    }
    return std::nullopt;
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
    return understood(client.Post("/charges", headers, order.dump(), "application/json"), amount);
}

}  // namespace payments
