#include "event.hpp"

#include <idempotency/problem.hpp>
#include <regex>

#include "service/json_body.hpp"

namespace webhooks {
namespace {

using idempotency::Refusal;
using nlohmann::json;

Refusal invalid() {
    return Refusal(idempotency::problem(422, "/problems/invalid-request", "Invalid request",
                                        "An event has type, resource_id and updated_at (RFC 3339), "
                                        "all of them strings, the first two "
                                        "with 100 characters at most."));
}

json parse(const std::string& body) {
    auto parsed = payments::parse_json(body);
    if (!parsed.is_object()) throw invalid();
    return parsed;
}

constexpr std::size_t kLongestText = 100;
constexpr std::size_t kLongestId = 255;  // the limit of a key

// Without control characters, which a key cannot contain.
std::string text(const json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) throw invalid();
    auto value = found->get<std::string>();
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7F; };
    if (value.empty() || value.size() > kLongestText ||
        std::any_of(value.begin(), value.end(), is_control)) {
        throw invalid();
    }
    return value;
}

// The server would also take "now" and "tomorrow", which mean another moment each time they are
// sent.
std::string moment(const json& object, const char* name) {
    static const std::regex form(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?"
        "([Zz]|[+-][0-9]{2}:[0-9]{2})");
    auto value = text(object, name);
    if (!std::regex_match(value, form)) throw invalid();
    return value;
}

}  // namespace

Event read_event(pqxx::work& tx, const std::string& body) try {
    const json parsed = parse(body);
    Event event{text(parsed, "type"), text(parsed, "resource_id"), moment(parsed, "updated_at"),
                parsed.value("data", json()), ""};
    const auto row =
        tx.exec_params1("SELECT idem_event_id($1, $2, $3::timestamptz), $4::jsonb", event.type,
                        event.resource_id, event.updated_at, event.data.dump());
    event.id = row[0].as<std::string>();
    if (event.id.size() > kLongestId) throw invalid();
    return event;
} catch (const pqxx::data_exception&) {
    throw invalid();
}

}  // namespace webhooks
