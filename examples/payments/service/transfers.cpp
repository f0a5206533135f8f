#include "transfers.hpp"

#include <httplib.h>

#include <algorithm>
#include <idempotency/problem.hpp>
#include <set>

namespace payments {
namespace {

using idempotency::Ended;

constexpr std::size_t kLongestId = 200;
constexpr std::size_t kLongestAnswer = 65536;

// The gateway's key is a function of the client's key. However often the request runs again, also
// after the record has expired, the gateway sees one request, and the table has one row of it.
constexpr char kReserve[] = R"(
WITH gateway AS (SELECT idem_key('transfer', $1, $2) AS key),
     request AS (SELECT key, 'tr_' || left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 32) AS id
                   FROM gateway),
     reserved AS (INSERT INTO payments.transfer (id, tenant, key, amount, currency)
                  SELECT id, $1, $2, $3::numeric, $4 FROM request
                  ON CONFLICT (id) DO NOTHING)
SELECT id, key AS gateway_key FROM request)";

// For a transfer that was done long ago, a refusal of the same key with another payload tells
// nothing.
constexpr char kDecline[] =
    "UPDATE payments.transfer SET status = 'declined' WHERE id = $1 AND status = 'reserved'";
constexpr char kSettle[] = R"(
UPDATE payments.transfer SET status = 'done', gateway_charge = $2, amount = $3::numeric, currency = $4
 WHERE id = $1)";

// Ignores an answer that could neither be repeated to the client nor looked up at the gateway.
bool is_id(const json& id) {
    if (!id.is_string()) return false;
    const auto& text = id.get_ref<const std::string&>();
    const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
    return !text.empty() && text.size() <= kLongestId &&
           std::all_of(text.begin(), text.end(), is_visible);
}

json reserve(Driver::Transaction& tx, const Exchange& call, const Money& amount) {
    const auto row =
        tx.exec_params1(kReserve, call.principal, call.key, amount.value, amount.currency);
    return {{"transfer", row["id"].as<std::string>()},
            {"gateway_key", row["gateway_key"].as<std::string>()}};
}

// The gateway would refuse the same request again.
Answer refused_by_gateway() {
    return idempotency::problem(422, "/problems/refused-by-gateway", "Refused by the gateway",
                                "The payment gateway does not accept this transfer; send another "
                                "with a new key.");
}

Answer bad_gateway() {
    return idempotency::problem(502, "/problems/bad-gateway", "Bad gateway",
                                "The payment gateway gave no answer; repeat the request with the "
                                "same key.");
}

Answer settle(Driver::Transaction& tx, const json& state, const Money& amount) {
    const auto id = state.at("transfer").get<std::string>();
    const auto charge = state.at("gateway_charge").get<std::string>();
    tx.exec_params0(kSettle, id, charge, amount.value, amount.currency);
    return json_response(201,
                         {{"id", id}, {"gateway_charge", charge}, {"amount", to_json(amount)}});
}

}  // namespace

// An attempt skips each step that is done already. It notes the gateway's answer before using it.
Ended Transfers::create(idempotency::LeasedClaim<Driver> claim, const Exchange& call) {
    Money amount;
    std::string card;
    try {
        const json order = object_in(call.request.body);
        amount = money(order, "amount");
        card = text(order, "card", "");
    } catch (const idempotency::Refusal& refusal) {
        return std::move(claim).finish(refusal.answer());
    }
    if (claim.recovery_point().empty()) {
        claim.step("reserved", [&](Driver::Transaction& tx) { return reserve(tx, call, amount); });
    }
    if (claim.recovery_point() == "reserved") {
        json state = claim.state();
        claim.ensure_held();
        const auto answer = charge(state, amount, card);
        if (!answer) return std::move(claim).finish(bad_gateway());
        if (answer->kind != Charge::Charged) {
            return std::move(claim).finish([&](Driver::Transaction& tx) {
                tx.exec_params0(kDecline, state.at("transfer").get<std::string>());
                return answer->kind == Charge::Declined ? declined() : refused_by_gateway();
            });
        }
        cards_.play(card);
        state["gateway_charge"] = answer->id;
        claim.step("charged", [&](Driver::Transaction&) { return state; });
    }
    const json state = claim.state();
    return std::move(claim).finish(
        [&](Driver::Transaction& tx) { return settle(tx, state, amount); });
}

// A new client for each call: it is cheap, and not thread-safe. Its timeouts are for each read, so
// a watchdog stops a gateway that sends slowly.
std::optional<Transfers::Charge> Transfers::charge(const json& state, const Money& amount,
                                                   const std::string& card) {
    const json order = {{"amount", amount.value},
                        {"currency", amount.currency},
                        {"reference", state.at("transfer")},
                        {"card", card}};
    httplib::Request request;
    request.method = "POST";
    request.path = "/charges";
    request.set_header("Idempotency-Key", state.at("gateway_key").dump());
    request.set_header("Content-Type", "application/json");
    request.body = order.dump();
    std::string body;
    request.content_receiver = [&body](const char* part, std::size_t size, auto, auto) {
        body.append(part, size);
        return body.size() <= kLongestAnswer;
    };
    httplib::Client client(gateway_);
    client.set_connection_timeout(timeout_);
    client.set_read_timeout(timeout_);
    const auto deadline =
        watchdog_.at(idempotency::Clock::now() + timeout_, [&client] { client.stop(); });
    const auto result = client.send(request);
    return result ? understood(result->status, body, amount) : std::nullopt;
}

// Of the refusals, those that say "later", or that an operator of this service must mend, are no
// answer: the same request may succeed afterwards.
std::optional<Transfers::Charge> Transfers::understood(int status, const std::string& body,
                                                       const Money& amount) {
    static const std::set<int> later = {401, 403, 408, 409, 425, 429};
    if (status == 402) return Charge{Charge::Declined, ""};
    if (status >= 400 && status < 500 && later.count(status) == 0) {
        return Charge{Charge::Refused, ""};
    }
    const auto made = json::parse(body, nullptr, /* allow_exceptions */ false);
    const bool ours = status == 201 && made.is_object() && is_id(made.value("id", json())) &&
                      made.value("amount", json()) == amount.value &&
                      made.value("currency", json()) == amount.currency;
    if (!ours) return std::nullopt;
    return Charge{Charge::Charged, made["id"].get<std::string>()};
}

}  // namespace payments
