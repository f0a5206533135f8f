// What is asked of every node of a cluster.
#pragma once

#include "pg/pg.hpp"

namespace idem::operate {

// Runs a statement that returns one number on each node, this one included, and returns the sum.
// Each node commits by itself. An error if one of them can't be asked or fails. `statement` makes
// it, with what the nodes before have returned.
std::int64_t sum_of_nodes(char* (*statement)(std::int64_t before, void* argument), void* argument);

// Host and port of this node of a cluster; nullptr on a single server.
text* name_of_this_node();

// Whether other nodes are to be asked as well: there are some, and none of them asks.
bool asks_other_nodes();

}  // namespace idem::operate
