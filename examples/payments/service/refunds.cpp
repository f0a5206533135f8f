#include "refunds.hpp"

#include <idempotency/problem.hpp>
#include "answers.hpp"
#include "fields.hpp"
#include "json_body.hpp"

namespace payments {
namespace {

using idempotency::Exchange;

// Locks the payment: two refunds with different keys must not both find the whole amount left.
constexpr char kFind[] = R"(
SELECT c.amount, c.currency, c.customer
  FROM payments.charge c
 WHERE c.id = $1 AND c.tenant = $2
   FOR UPDATE)";

constexpr char kInsert[] = R"(
INSERT INTO payments.refund (id, tenant, payment, amount, currency)
SELECT 're_' || replace(gen_random_uuid()::text, '-', ''), $1, $2, $3::numeric, $4
 WHERE $3::numeric <= $5::numeric
                      - (SELECT coalesce(sum(amount), 0) FROM payments.refund WHERE payment = $2)
RETURNING id)";

constexpr char kBook[] = R"(
UPDATE payments.account SET balance = balance - $4
 WHERE tenant = $1 AND customer = $2 AND currency = $3)";

idempotency::Answer too_much() {
    return idempotency::problem(422, "/problems/invalid-request", "Invalid request",
                                "That is not what is left of the payment.");
}

}  // namespace

idempotency::Answer create_refund(pqxx::work& tx, const Exchange& call) {
    Fields fields(parse_json(call.request.body));
    const auto payment = fields.text("payment");
    const auto asked = fields.has("amount") ? fields.money("amount") : Money{};
    if (fields.faulty()) return fields.refusal();

    const auto found = tx.exec_params(kFind, payment, call.principal);
    if (found.empty()) return not_found();
    const Money whole{found[0]["amount"].as<std::string>(), found[0]["currency"].as<std::string>()};
    const Money amount = asked.value.empty() ? whole : asked;
    if (amount.currency != whole.currency) return too_much();

    const auto refund = tx.exec_params(kInsert, call.principal, payment, amount.value,
                                       amount.currency, whole.value);
    if (refund.empty()) return too_much();
    tx.exec_params0(kBook, call.principal, found[0]["customer"].as<std::string>(), amount.currency,
                    amount.value);
    return json_response(201, {{"id", refund[0]["id"].as<std::string>()},
                               {"payment", payment},
                               {"amount", to_json(amount)}});
}

}  // namespace payments
