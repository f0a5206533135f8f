// The database of a run: its set-up, and its required state at rest.
#pragma once

#include "check/rules.hpp"
#include "faults/server.hpp"
#include "load/plan.hpp"

namespace idem::chaos {

// The extension, the policies of scopes() and the tables of the work. `body_limit` in bytes.
void set_up(const Server& server, std::int64_t body_limit);

// The same as one transaction that drops the extension first: SQL.
std::string drop_and_create(std::int64_t body_limit);

// Or the edition without C.
bool has_module(const Server& server);

// Whether idem_begin and idem_once have this argument.
bool has_same_statement(const Server& server);

// Effects, parts, looks, readings, and the rows on the foreign server.
void read_work(const Server& server, bool foreign, History* history);

// Returns when every lease has expired.
void await_end_of_leases(const Server& server);

// Invariants 18 (nothing leaks), 19 (nothing broke, by the server's log) and 20 (table and indexes
// are sound and agree).
std::vector<Violation> check_at_rest(const Server& server);
// The same of a standby: 19 and 20.
std::vector<Violation> check_standby(const Server& server, bool in_shards = false);
// Of a node of a cluster, where the records are in shards: 18, 19 and 20.
std::vector<Violation> check_node(const Server& server);

}  // namespace idem::chaos
