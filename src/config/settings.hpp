// Every setting of the extension, prefix "idempotency.". Nothing else defines one.
#pragma once

#include "core/policy.hpp"
#include "core/store_choice.hpp"
#include "pg/pg.hpp"

namespace idem::config {

void define_settings();

enum class LogEvents { Off, Problems, All };
LogEvents log_events();
bool log_keys();

// One for the whole server, and for the life of a process: claims of one transaction, and of
// sessions that meet, are not to be kept in two ways.
core::StoreChoice store_choice();

// Of the sweeper. Seconds; 0: it is off.
int cleanup_interval();
int cleanup_batch_size();
// How long after its retention a record is kept, in microseconds.
std::int64_t cleanup_grace();

// The policy that holds where no row of idempotency.policy says otherwise.
core::Policy default_policy();

}  // namespace idem::config
