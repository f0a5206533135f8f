// Every setting of the extension, prefix "idempotency.". Nothing else defines one.
#pragma once

#include "core/policy.hpp"
#include "pg/pg.hpp"

namespace idem::config {

void define_settings();

// The policy that holds where no row of idempotency.policy says otherwise.
core::Policy default_policy();

}  // namespace idem::config
