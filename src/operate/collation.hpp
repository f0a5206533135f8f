// The collation of principals in a cluster: that of the distribution column of the table they are
// colocated with. Call these within run() of pg/statements.hpp.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

inline constexpr const char* kDefaultCollation = "pg_catalog.\"default\"";

// The collation as SQL names it on every node. nullptr: another node might lack it, or it is not
// deterministic: texts of different bytes could be equal.
const char* name_everywhere(Oid collation);

// Changes the principals to the collation of this name, on all present and later nodes. Other nodes
// change at once, outside this transaction. That is harmless while there are no records.
void take_on_collation(const char* collation);

}  // namespace idem::operate
