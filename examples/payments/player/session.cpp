#include "session.hpp"

#include <chrono>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace payments {
namespace {

using nlohmann::json;

constexpr char kBegin[] =
    "SELECT outcome, status_code, headers, convert_from(body, 'UTF8')"
    "  FROM idem_begin($1, request => $2::jsonb, scope => 'POST /payments', principal => $3)";
constexpr char kCharge[] =
    "INSERT INTO payments.charge (id, line, tenant, key, customer, currency, amount, charged_at)"
    "VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())";
constexpr char kBook[] =
    "INSERT INTO payments.account AS a (tenant, customer, currency, balance)"
    "VALUES ($1, $2, $3, $4)"
    "ON CONFLICT (tenant, customer, currency) DO UPDATE SET balance = a.balance + excluded.balance";
constexpr char kComplete[] =
    "SELECT idem_complete($1, $2, $3::text, $4::jsonb, scope => 'POST /payments', principal => $5)";

// libpqxx sends a null pointer as NULL.
const char* key_or_null(const Request& request) {
    return request.key ? request.key->c_str() : nullptr;
}

std::string random_id() {
    static std::random_device device;
    std::ostringstream id;
    id << "ch_" << std::hex << std::setfill('0');
    for (int i = 0; i < 4; ++i) id << std::setw(8) << device();
    return id.str();
}

long long microseconds_now() {
    using namespace std::chrono;
    return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

Response stored_response(const pqxx::row& row) {
    const auto headers = json::parse(row[2].as<std::string>());
    return {row[1].as<int>(), headers.dump(), row[3].as<std::string>()};
}

}  // namespace

Charge new_charge(const Request& request) {
    const std::string id = random_id();
    const json headers = {{"Content-Type", "application/json"}, {"Location", "/payments/" + id}};
    const json body = {{"id", id},
                       {"amount", {{"value", request.amount}, {"currency", request.currency}}},
                       {"customer", request.customer},
                       {"status", "captured"},
                       {"created_us", microseconds_now()}};
    return {id, {kCreated, headers.dump(), body.dump()}};
}

Session::Session(const std::string& database) : connection_(database) {
    {
        pqxx::nontransaction tx(connection_);
        tx.exec("SET client_encoding TO 'UTF8'");
        tx.exec("SET ROLE payments_app");
    }
    connection_.prepare("begin_payment", kBegin);
    connection_.prepare("insert_charge", kCharge);
    connection_.prepare("book_charge", kBook);
    connection_.prepare("complete_payment", kComplete);
}

Claim begin_payment(pqxx::work& tx, const Request& request) {
    const auto rows =
        tx.exec_prepared("begin_payment", key_or_null(request), request.body, request.tenant);
    Claim claim{rows[0][0].as<std::string>(), {}};
    if (claim.outcome == "replay") claim.response = stored_response(rows[0]);
    return claim;
}

void insert_charge(pqxx::work& tx, const Request& request, const Charge& charge) {
    tx.exec_prepared("insert_charge", charge.id, request.n, request.tenant, key_or_null(request),
                     request.customer, request.currency, request.amount);
}

void book_charge(pqxx::work& tx, const Request& request) {
    tx.exec_prepared("book_charge", request.tenant, request.customer, request.currency,
                     request.amount);
}

void complete_payment(pqxx::work& tx, const Request& request, const Response& response) {
    tx.exec_prepared("complete_payment", key_or_null(request), response.status, response.body,
                     response.headers, request.tenant);
}

}  // namespace payments
