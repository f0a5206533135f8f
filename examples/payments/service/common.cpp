#include "common.hpp"

#include <signal.h>

#include <idempotency/problem.hpp>
#include <regex>
#include <thread>

namespace payments {
namespace {

using idempotency::Refusal;

constexpr std::size_t kLongestText = 2000;

// A regex recurses with the length of its text, so the length is checked first.
std::string matching(const json& object, const char* name, const char* pattern) {
    const auto found = text(object, name);
    if (found.size() < 20 && std::regex_match(found, std::regex(pattern))) return found;
    refuse("'" + std::string(name) + "' is malformed.");
}

}  // namespace

// The application's role has the protocol functions and the application's own tables, and no other
// rights.
Pool::Setup connection_setup(const std::string& application_name) {
    return [application_name](pqxx::connection& connection) {
        pqxx::nontransaction tx(connection);
        tx.exec("SET client_encoding TO 'UTF8'");
        tx.exec("SET TIME ZONE 'UTC'");
        tx.exec("SET statement_timeout TO '15s'");
        tx.exec("SET application_name TO " + tx.quote(application_name));
        tx.exec("SET ROLE payments_app");
    };
}

// The scheme in any letter case, one blank or more, the token (RFC 9110). Two fields count as none.
std::optional<std::string> tenant_of(const idempotency::Request& head) {
    const auto field = idempotency::value_of(head.headers, "Authorization");
    static const std::regex form("bearer +sk_([a-z0-9_]{1,64})", std::regex::icase);
    std::smatch parts;
    if (field.size() > 100 || !std::regex_match(field, parts, form)) return std::nullopt;
    return parts[1].str();
}

Answer json_response(int status, const json& body) {
    return {status, {{"Content-Type", "application/json"}}, body.dump()};
}

Answer declined() {
    return idempotency::problem(402, "/problems/card-declined", "Payment required",
                                "The card is declined.");
}

void refuse(const std::string& detail) {
    throw Refusal(
        idempotency::problem(422, "/problems/invalid-request", "Invalid request", detail));
}

// The library has limited the depth: copies and printing recurse.
json object_in(const std::string& body) {
    auto parsed = json::parse(body, nullptr, /* allow_exceptions */ false);
    if (parsed.is_discarded()) throw Refusal(idempotency::bad_json());
    if (!parsed.is_object()) refuse("The body is not an object.");
    return parsed;
}

// A text of PostgreSQL cannot contain a NUL, and libpq would take the part before it for the whole
// string.
std::string text(const json& object, const char* name) {
    const auto found = object.find(name);
    const bool usable = found != object.end() && found->is_string() &&
                        found->get_ref<const std::string&>().size() <= kLongestText &&
                        found->get_ref<const std::string&>().find('\0') == std::string::npos;
    if (!usable) refuse("'" + std::string(name) + "' is missing, or is no text of usual length.");
    return found->get<std::string>();
}

std::string text(const json& object, const char* name, const std::string& otherwise) {
    return object.contains(name) ? text(object, name) : otherwise;
}

// A decimal string: a JSON number would pass through a binary fraction.
Money money(const json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_object()) {
        refuse("'" + std::string(name) + "' is not an object of value and currency.");
    }
    return {matching(*found, "value", "(?=.*[1-9])[0-9]{1,12}(\\.[0-9]{1,4})?"),
            matching(*found, "currency", "[A-Z]{3}")};
}

json to_json(const Money& money) {
    return {{"value", money.value}, {"currency", money.currency}};
}

void TestCards::play(const std::string& card) const {
    const std::string slow = "tok_slow_";
    if (!enabled_) return;
    if (card == "tok_crash") raise(SIGKILL);
    if (card.compare(0, slow.size(), slow) == 0) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(std::atoi(card.c_str() + slow.size())));
    }
}

}  // namespace payments
