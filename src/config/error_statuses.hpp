// The option error_statuses: a map from SQLSTATEs of an operation to the HTTP statuses of its
// refusals.
#pragma once

#include <optional>

#include "pg/pg.hpp"

namespace idem::config {

// Whether it is an object from SQLSTATEs and classes that may be final to HTTP statuses of
// refusals.
bool are_error_statuses(Jsonb* map);

// The status of the SQLSTATE, else that of its class; nullopt: it has none, or there is no map.
std::optional<std::int32_t> status_of_error(Jsonb* map, std::string_view sqlstate);

}  // namespace idem::config
