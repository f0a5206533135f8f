#include "payments.hpp"

namespace payments {
namespace {

constexpr char kDeclinedCard[] = "tok_declined";

// A random id, so that a second execution gives a different answer.
constexpr char kCharge[] = R"(
INSERT INTO payments.charge (id, tenant, key, customer, currency, amount, description, charged_at)
VALUES ('pay_' || replace(gen_random_uuid()::text, '-', ''), $1, $2, $3, $4, $5, $6,
        clock_timestamp())
RETURNING id, (extract(epoch FROM charged_at) * 1000000)::bigint AS created_us)";

constexpr char kBook[] = R"(
INSERT INTO payments.account AS a (tenant, customer, currency, balance) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, customer, currency) DO UPDATE SET balance = a.balance + excluded.balance)";

}  // namespace

// Checks everything before the first write: an answer below 500 commits.
Answer create_payment(Driver::Transaction& tx, const Exchange& call, const TestCards& cards) {
    const json order = object_in(call.request.body);
    const Money amount = money(order, "amount");
    const auto customer = text(order, "customer"), card = text(order, "card");
    const auto description = text(order, "description", "");
    if (card == kDeclinedCard) return declined();

    const auto charge = tx.exec_params1(kCharge, call.principal, call.key, customer,
                                        amount.currency, amount.value, description);
    tx.exec_params0(kBook, call.principal, customer, amount.currency, amount.value);
    cards.play(card);

    const auto id = charge["id"].as<std::string>();
    auto answer = json_response(201, {{"id", id},
                                      {"amount", to_json(amount)},
                                      {"customer", customer},
                                      {"status", "captured"},
                                      {"created_us", charge["created_us"].as<long long>()}});
    answer.headers.emplace_back("Location", "/payments/" + id);
    return answer;
}

}  // namespace payments
