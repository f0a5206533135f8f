// Queries and commands for every node of a cluster.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

// Runs a statement that returns one number on each node, this one included, and returns the sum.
// Each node commits on its own. An error if a node can't be reached or fails. `statement` builds
// it; `before` is the sum of the previous nodes.
std::int64_t sum_of_nodes(char* (*statement)(std::int64_t before, void* argument), void* argument);

// Host and port of this node of a cluster; nullptr on a single server.
text* name_of_this_node();

// Whether to ask other nodes too: there are some, and this session does not answer one of them.
bool asks_other_nodes();

}  // namespace idem::operate
