// The tables of the work, and what works in them: SQL.
#pragma once

#include <string>
#include <vector>

namespace idem::chaos {

// Everything that needs nothing of the extension, in a schema of its own, and the roles.
std::string work_tables();

// What idem_execute runs. It goes and comes back with the extension, whose type it returns.
std::string work_operation();

// On a Citus cluster: the tables of the work beside the records, in shards by principal.
std::vector<std::string> distributed_work();

// A foreign table whose server is the one itself, behind its socket in `folder`.
std::string foreign_table(const std::string& folder, int port);

}  // namespace idem::chaos
