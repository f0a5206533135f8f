// payment.*: handlers that only write to the database.
#pragma once

#include <pqxx/pqxx>

#include "event.hpp"

namespace webhooks {

// Does nothing for an event that has been here. One that is older than what is known of its
// resource is remembered, and changes nothing; of two of one moment, the one that comes later
// counts.
void apply_once(pqxx::work& tx, const Event& event);

}  // namespace webhooks
