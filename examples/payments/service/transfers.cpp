#include "transfers.hpp"

#include "answers.hpp"
#include "fields.hpp"
#include "idempotency/problem.hpp"

namespace payments {
namespace {

using idempotency::Call;
using idempotency::LeasedClaim;
using nlohmann::json;

// The gateway's key is derived from the client's: however often this is run again, the gateway sees
// one request.
constexpr char kReserve[] = R"(
INSERT INTO payments.transfer (id, tenant, key, amount, currency)
VALUES ('tr_' || replace(gen_random_uuid()::text, '-', ''), $1, $2, $3, $4)
RETURNING id, idem_key('transfer', $1, $2) AS gateway_key)";

constexpr char kDecline[] = "UPDATE payments.transfer SET status = 'declined' WHERE id = $1";
constexpr char kSettle[] =
    "UPDATE payments.transfer SET status = 'done', gateway_charge = $2 WHERE id = $1";

json reserve(pqxx::work& tx, const Call& call, const Money& amount) {
    const auto row =
        tx.exec_params1(kReserve, call.principal, call.key, amount.value, amount.currency);
    return {{"transfer", row["id"].as<std::string>()},
            {"gateway_key", row["gateway_key"].as<std::string>()}};
}

httplib::Response decline(pqxx::work& tx, const json& state) {
    tx.exec_params0(kDecline, state.at("transfer").get<std::string>());
    return declined();
}

httplib::Response settle(pqxx::work& tx, const json& state, const Money& amount) {
    const auto id = state.at("transfer").get<std::string>();
    const auto charge = state.at("gateway_charge").get<std::string>();
    tx.exec_params0(kSettle, id, charge);
    return json_response(201,
                         {{"id", id}, {"gateway_charge", charge}, {"amount", to_json(amount)}});
}

httplib::Response bad_gateway() {
    return idempotency::problem(502, "/problems/bad-gateway", "Bad gateway",
                                "The payment gateway gave no answer; repeat the request with the "
                                "same key.");
}

}  // namespace

// Each step is skipped by an attempt that finds it done. The gateway's answer is noted before
// anything is made of it.
httplib::Response Transfers::create(LeasedClaim& claim, const Call& call) const {
    Fields fields(call.body);
    const Money amount = fields.money("amount");
    const std::string card = fields.text("card", "");
    if (fields.faulty()) return fields.refusal();

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
        if (!answer) return bad_gateway();
        if (answer->declined) {
            return claim.complete([&](pqxx::work& tx) { return decline(tx, state); });
        }
        cards_.crash_at_first(card, claim.attempt());
        state["gateway_charge"] = answer->charge;
        claim.step("charged", [&](pqxx::work&) { return state; });
    }
    return claim.complete([&](pqxx::work& tx) { return settle(tx, claim.state(), amount); });
}

}  // namespace payments
