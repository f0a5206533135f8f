// An event as a sender reports it: it may come twice, late, or after newer ones.
#pragma once

#include <nlohmann/json.hpp>
#include <pqxx/pqxx>
#include <string>

namespace webhooks {

struct Event {
    std::string type;
    std::string resource_id;
    std::string updated_at;  // ISO 8601
    nlohmann::json data;
    std::string id;  // the same for each sending of the same event
};

// Asks the database for the id. Throws idempotency::Refusal: 400 or 422.
Event read_event(pqxx::work& tx, const std::string& body);

}  // namespace webhooks
