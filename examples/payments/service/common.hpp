// What the routes share: connections, the tenant, and bodies in JSON.
#pragma once

#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace payments {

using idempotency::Answer;
using idempotency::Exchange;
using nlohmann::json;
using Driver = idempotency::Pqxx;
using Pool = idempotency::Pool<Driver>;

struct Money {
    std::string value;  // decimal, as sent: "251.85"
    std::string currency;
};

Pool::Setup connection_setup(const std::string& application_name);

// The caller: "Authorization: Bearer sk_<tenant>". A real service would look the key up.
std::optional<std::string> tenant_of(const idempotency::Request& head);

Answer json_response(int status, const json& body);
Answer declined();

// These throw idempotency::Refusal: the answer is not stored, so the same key may be sent with a
// corrected body.
json object_in(const std::string& body);
std::string text(const json& object, const char* name);
std::string text(const json& object, const char* name, const std::string& otherwise);
Money money(const json& object, const char* name);
json to_json(const Money& money);
[[noreturn]] void refuse(const std::string& detail);

// Cards that make a handler misbehave, for the tests: tok_slow_MS and tok_crash. Other programs
// take them for ordinary cards.
class TestCards {
  public:
    explicit TestCards(bool enabled) : enabled_(enabled) {}
    void play(const std::string& card) const;

  private:
    const bool enabled_;
};

}  // namespace payments
