// Reads the members of a request body. Keeps the first missing or mistyped member as the fault;
// values read after it have no meaning.
#pragma once

#include <idempotency/http.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace payments {

struct Money {
    std::string value;  // decimal, as sent: "251.85"
    std::string currency;
};

nlohmann::json to_json(const Money& money);

class Fields {
  public:
    explicit Fields(const nlohmann::json& body);

    std::string text(const std::string& name);  // not empty
    std::string text(const std::string& name, const std::string& otherwise);
    Money money(const std::string& name);
    bool has(const std::string& name) const { return body_.contains(name); }

    bool faulty() const { return !fault_.empty(); }
    // 422: the same request can never succeed, so the answer is kept like any other.
    idempotency::Answer refusal() const;

  private:
    void blame(const std::string& name, const char* what);
    std::string matching(const nlohmann::json& object, const char* name, const char* pattern);

    const nlohmann::json body_;
    std::string fault_;
};

}  // namespace payments
