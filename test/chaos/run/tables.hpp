// The SQL of the tables of the work, and of the functions that work in them.
#pragma once

#include <string>
#include <vector>

namespace idem::chaos {

// All objects that do not need the extension, in a separate schema, and the roles.
std::string work_tables();

// The operation of idem_execute. It is dropped and created with the extension, whose type it
// returns.
std::string work_operation();

// On a Citus cluster: the tables of the work beside the records, in shards by principal.
std::vector<std::string> distributed_work();

// A foreign table whose server is the one itself, behind its socket in `folder`.
std::string foreign_table(const std::string& folder, int port);

}  // namespace idem::chaos
