// Triggers that the server would run at commit.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// An error (55000) if a table of ours has a deferred trigger: it would run as whoever commits, so
// the server itself refuses it under our statements, when the work is done and the result is
// written. The table is locked.
void refuse_deferred_trigger(Relation table);

}  // namespace idem::store
