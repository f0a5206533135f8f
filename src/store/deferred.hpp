// Triggers that would run at commit.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// An error (55000) if a table of ours has a deferred trigger. It would run as the user who commits.
// So the server itself refuses it under our statements, but only after the work is done and the
// result written. The table is locked.
void refuse_deferred_trigger(Relation table);

}  // namespace idem::store
