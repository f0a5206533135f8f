#include "transfers.hpp"

#include <idempotency/problem.hpp>
#include "answers.hpp"
#include "fields.hpp"
#include "json_body.hpp"

namespace payments {
namespace {

using idempotency::Ended;
using idempotency::Exchange;
using nlohmann::json;

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

json reserve(pqxx::work& tx, const Exchange& call, const Money& amount) {
    const auto row =
        tx.exec_params1(kReserve, call.principal, call.key, amount.value, amount.currency);
    return {{"transfer", row["id"].as<std::string>()},
            {"gateway_key", row["gateway_key"].as<std::string>()}};
}

// The gateway would refuse the same request again.
idempotency::Answer refused_by_gateway() {
    return idempotency::problem(422, "/problems/refused-by-gateway", "Refused by the gateway",
                                "The payment gateway does not accept this transfer; send another "
                                "with a new key.");
}

idempotency::Answer decline(pqxx::work& tx, const json& state, const GatewayAnswer& answer) {
    tx.exec_params0(kDecline, state.at("transfer").get<std::string>());
    return answer.kind == GatewayAnswer::Declined ? declined() : refused_by_gateway();
}

idempotency::Answer settle(pqxx::work& tx, const json& state, const Money& amount) {
    const auto id = state.at("transfer").get<std::string>();
    const auto charge = state.at("gateway_charge").get<std::string>();
    tx.exec_params0(kSettle, id, charge, amount.value, amount.currency);
    return json_response(201,
                         {{"id", id}, {"gateway_charge", charge}, {"amount", to_json(amount)}});
}

idempotency::Answer bad_gateway() {
    return idempotency::problem(502, "/problems/bad-gateway", "Bad gateway",
                                "The payment gateway gave no answer; repeat the request with the "
                                "same key.");
}

}  // namespace

// An attempt skips each step that is done already. It notes the gateway's answer before using it.
Ended Transfers::create(idempotency::LeasedClaim<Driver> claim, const Exchange& call) const {
    Fields fields(parse_json(call.request.body));
    const Money amount = fields.money("amount");
    const std::string card = fields.text("card", "");
    if (fields.faulty()) return std::move(claim).finish(fields.refusal());

    if (claim.recovery_point().empty()) {
        claim.step("reserved", [&](pqxx::work& tx) { return reserve(tx, call, amount); });
    }
    cards_.throw_if_asked(card);
    cards_.sleep_if_slow(card);
    if (claim.recovery_point() == "reserved") {
        json state = claim.state();
        claim.ensure_held();
        const auto answer =
            gateway_.charge(state.at("gateway_key"), amount, state.at("transfer"), card);
        if (!answer) return std::move(claim).finish(bad_gateway());
        if (answer->kind != GatewayAnswer::Charged) {
            return std::move(claim).finish(
                [&](pqxx::work& tx) { return decline(tx, state, *answer); });
        }
        cards_.crash_at_first(card, claim.attempt());
        state["gateway_charge"] = answer->charge;
        claim.step("charged", [&](pqxx::work&) { return state; });
    }
    const json state = claim.state();
    return std::move(claim).finish([&](pqxx::work& tx) { return settle(tx, state, amount); });
}

}  // namespace payments
