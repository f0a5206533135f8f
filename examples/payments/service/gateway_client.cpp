#include "gateway_client.hpp"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace payments {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kConnectTimeout{2000};

constexpr std::size_t kLongestId = 200;
constexpr std::size_t kLongestAnswer = 65536;

// Ignores an answer that could neither be repeated to the client nor looked up at the gateway.
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

// Refusals that say "later", or that an operator of this service must mend: the same request may
// succeed afterwards.
bool says_later(int status) {
    return status == 401 || status == 403 || status == 408 || status == 409 || status == 425 ||
           status == 429;
}

std::optional<GatewayAnswer> understood(int status, const std::string& body, const Money& amount) {
    if (says_later(status)) return std::nullopt;
    if (status == 201) return charged(body, amount);
    if (status == 402) return GatewayAnswer{GatewayAnswer::Declined, ""};
    if (status >= 400 && status < 500) {
        return GatewayAnswer{GatewayAnswer::Refused, ""};
    }
    return std::nullopt;
}

}  // namespace

// A new client for each call: it is cheap, and not thread-safe. Its timeouts are for each read, so
// a watchdog stops a gateway that sends slowly.
std::optional<GatewayAnswer> GatewayClient::charge(const std::string& key, const Money& amount,
                                                   const std::string& reference,
                                                   const std::string& card) {
    const json order = {{"amount", amount.value},
                        {"currency", amount.currency},
                        {"reference", reference},
                        {"card", card}};
    httplib::Request request;
    request.method = "POST";
    request.path = "/charges";
    request.set_header("Idempotency-Key", json(key).dump());
    request.set_header("Content-Type", "application/json");
    request.body = order.dump();
    std::string body;
    request.content_receiver = [&body](const char* part, std::size_t size, auto, auto) {
        body.append(part, size);
        return body.size() <= kLongestAnswer;
    };

    httplib::Client client(url_);
    client.set_connection_timeout(std::min(timeout_, kConnectTimeout));
    client.set_read_timeout(timeout_);
    const auto deadline =
        watchdog_.at(idempotency::Clock::now() + timeout_, [&client] { client.stop(); });
    const auto result = client.send(request);
    if (!result) return std::nullopt;
    return understood(result->status, body, amount);
}

}  // namespace payments
