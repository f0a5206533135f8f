#include "payments.hpp"

#include "answers.hpp"
#include "fields.hpp"
#include "tenant.hpp"

namespace payments {
namespace {

using idempotency::Call;
using nlohmann::json;

constexpr char kDeclinedCard[] = "tok_declined";

// A random id: a second execution could not hide behind the same bytes.
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

pqxx::row insert_charge(pqxx::work& tx, const Call& call, const Order& order) {
    return tx.exec_params1(kCharge, call.principal, call.key, order.customer, order.amount.currency,
                           order.amount.value, order.description);
}

void book(pqxx::work& tx, const Call& call, const Order& order) {
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

httplib::Response created(const pqxx::row& charge, const Order& order) {
    const auto id = charge["id"].as<std::string>();
    auto response = json_response(201, representation(id, order.amount, order.customer,
                                                      charge["created_us"].as<long long>()));
    response.set_header("Location", "/payments/" + id);
    return response;
}

// A row is of one type where it stands alone, and of another in its result (libpqxx 8).
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

}  // namespace

// What can be refused is refused before the first write: an answer below 500 commits.
httplib::Response Payments::create(pqxx::work& tx, const Call& call) const {
    Fields fields(call.body);
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

httplib::Response describe_payment(pqxx::work& tx, const Call& call) {
    Fields fields(call.body);
    const auto description = fields.text("description");
    if (fields.faulty()) return fields.refusal();

    const std::string id = call.request.matches[1];
    const auto updated = tx.exec_params(kDescribe, id, call.principal, description);
    if (updated.affected_rows() == 0) return not_found();
    return json_response(200, {{"id", id}, {"description", description}});
}

httplib::Response show_payment(idempotency::ConnectionPool& pool, const httplib::Request& request) {
    const auto tenant = required_tenant(request);
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    const auto rows = tx.exec_params(std::string(kSelect) + " WHERE tenant = $1 AND id = $2",
                                     tenant, request.matches[1].str());
    return rows.empty() ? not_found() : json_response(200, representation(rows[0]));
}

httplib::Response list_payments(idempotency::ConnectionPool& pool,
                                const httplib::Request& request) {
    const auto tenant = required_tenant(request);
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
