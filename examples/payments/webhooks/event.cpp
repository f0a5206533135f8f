#include "event.hpp"

#include "idempotency/json_body.hpp"
#include "idempotency/problem.hpp"

namespace webhooks {
namespace {

using idempotency::Refusal;
using nlohmann::json;

Refusal invalid() {
    return Refusal(idempotency::problem(
        422, "/problems/invalid-request", "Invalid request",
        "An event has type, resource_id and updated_at (ISO 8601), all of them strings."));
}

json parse(const std::string& body) {
    auto parsed = idempotency::parse_json(body);
    if (!parsed.is_object()) throw invalid();
    return parsed;
}

// A text without NUL, which PostgreSQL's text can't hold.
std::string text(const json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) throw invalid();
    auto value = found->get<std::string>();
    if (value.empty() || value.find('\0') != std::string::npos) throw invalid();
    return value;
}

}  // namespace

Event read_event(pqxx::work& tx, const std::string& body) try {
    const json parsed = parse(body);
    Event event{text(parsed, "type"), text(parsed, "resource_id"), text(parsed, "updated_at"),
                parsed.value("data", json()), ""};
    const auto row =
        tx.exec_params1("SELECT idem_event_id($1, $2, $3::timestamptz), $4::jsonb", event.type,
                        event.resource_id, event.updated_at, event.data.dump());
    event.id = row[0].as<std::string>();
    return event;
} catch (const pqxx::data_exception&) {
    throw invalid();
}

}  // namespace webhooks
