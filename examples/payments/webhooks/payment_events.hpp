// payment.*: handlers that only write to the database.
#pragma once

#include <pqxx/pqxx>

#include "event.hpp"

namespace webhooks {

// Does nothing for an event received before. An event older than the known state of its resource is
// stored, and changes nothing. Of two with the same time, the one that arrives later counts.
void apply_once(pqxx::work& tx, const Event& event);

}  // namespace webhooks
