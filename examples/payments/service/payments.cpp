#include "payments.hpp"

#include "answers.hpp"
#include "fields.hpp"
#include "http/message.hpp"
#include "json_body.hpp"

namespace payments {
namespace {

using idempotency::Exchange;
using nlohmann::json;

constexpr char kDeclinedCard[] = "tok_declined";

// A random id, so that a second execution gives a different answer.
constexpr char kCharge[] = R"(
INSERT INTO payments.charge (id, tenant, key, customer, currency, amount, description, charged_at)
VALUES ('pay_' || replace(gen_random_uuid()::text, '-', ''), $1, nullif($2, ''), $3, $4, $5, $6,
        clock_timestamp())
RETURNING id, (extract(epoch FROM charged_at) * 1000000)::bigint AS created_us)";

constexpr char kBook[] = R"(
INSERT INTO payments.account AS a (tenant, customer, currency, balance) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, customer, currency) DO UPDATE SET balance = a.balance + excluded.balance)";

constexpr char kSelect[] = R"(
SELECT id, customer, currency, amount, description,
       (extract(epoch FROM charged_at) * 1000000)::bigint AS created_us
  FROM payments.charge)";

constexpr char kDescribe[] =
    "UPDATE payments.charge SET description = $3 WHERE id = $1 AND tenant = $2";

struct Order {
    Money amount;
    std::string customer;
    std::string card;
    std::string description;
};

Order read_order(Fields& fields) {
    return {fields.money("amount"), fields.text("customer"), fields.text("card"),
            fields.text("description", "")};
}

pqxx::row insert_charge(pqxx::work& tx, const Exchange& call, const Order& order) {
    return tx.exec_params1(kCharge, call.principal, call.key, order.customer, order.amount.currency,
                           order.amount.value, order.description);
}

void book(pqxx::work& tx, const Exchange& call, const Order& order) {
    tx.exec_params0(kBook, call.principal, order.customer, order.amount.currency,
                    order.amount.value);
}

json representation(const std::string& id, const Money& amount, const std::string& customer,
                    long long created_us) {
    return {{"id", id},
            {"amount", to_json(amount)},
            {"customer", customer},
            {"status", "captured"},
            {"created_us", created_us}};
}

idempotency::Answer created(const pqxx::row& charge, const Order& order) {
    const auto id = charge["id"].as<std::string>();
    auto response = json_response(201, representation(id, order.amount, order.customer,
                                                      charge["created_us"].as<long long>()));
    response.headers.emplace_back("Location", "/payments/" + id);
    return response;
}

// libpqxx 8: a row alone has another type than a row in its result.
template <typename Row>
json representation(const Row& row) {
    const Money amount{row["amount"].template as<std::string>(),
                       row["currency"].template as<std::string>()};
    auto payment = representation(row["id"].template as<std::string>(), amount,
                                  row["customer"].template as<std::string>(),
                                  row["created_us"].template as<long long>());
    payment["description"] = row["description"].template as<std::string>("");
    return payment;
}

// The last part of the path.
std::string id_in(const idempotency::Request& request) {
    const auto path = http::path_of(request);
    return path.substr(path.rfind('/') + 1);
}

}  // namespace

// Checks everything before the first write: an answer below 500 commits.
idempotency::Answer Payments::create(pqxx::work& tx, const Exchange& call) const {
    Fields fields(parse_json(call.request.body));
    const Order order = read_order(fields);
    if (fields.faulty()) return fields.refusal();
    if (order.card == kDeclinedCard) return declined();

    const pqxx::row charge = insert_charge(tx, call, order);
    book(tx, call, order);

    cards_.sleep_if_slow(order.card);
    cards_.throw_if_asked(order.card);
    cards_.crash_once(order.card, call.principal, call.key);
    auto response = created(charge, order);
    cards_.disguise(order.card, response);
    return response;
}

idempotency::Answer describe_payment(pqxx::work& tx, const Exchange& call) {
    Fields fields(parse_json(call.request.body));
    const auto description = fields.text("description");
    if (fields.faulty()) return fields.refusal();

    const std::string id = id_in(call.request);
    const auto updated = tx.exec_params(kDescribe, id, call.principal, description);
    if (updated.affected_rows() == 0) return not_found();
    return json_response(200, {{"id", id}, {"description", description}});
}

idempotency::Answer show_payment(Pool& pool, const idempotency::Request& request,
                                 const std::string& tenant) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    const auto rows = tx.exec_params(std::string(kSelect) + " WHERE tenant = $1 AND id = $2",
                                     tenant, id_in(request));
    return rows.empty() ? not_found() : json_response(200, representation(rows[0]));
}

idempotency::Answer list_payments(Pool& pool, const idempotency::Request&,
                                  const std::string& tenant) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    auto payments = json::array();
    for (const auto& row : tx.exec_params(
             std::string(kSelect) + " WHERE tenant = $1 ORDER BY charged_at DESC LIMIT 100",
             tenant)) {
        payments.push_back(representation(row));
    }
    return json_response(200, {{"payments", payments}});
}

}  // namespace payments
