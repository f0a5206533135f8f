// The collation of principals in a cluster: that of the column beside which they are distributed.
// Within run() of statements.hpp.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

inline constexpr const char* kDefaultCollation = "pg_catalog.\"default\"";

// The collation as SQL names it on every node, or nullptr where another node might not have it, or
// where two texts of different bytes could be equal by it.
const char* name_everywhere(Oid collation);

// Principals take on the collation of this name, on all nodes that are there or join later. Other
// nodes do so at once and by themselves, which harms nothing as long as there are no records.
void take_on_collation(const char* collation);

}  // namespace idem::operate
