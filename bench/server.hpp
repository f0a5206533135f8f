// The server under test, as its operator sees it. It has to be a throw-away one: records are
// truncated and settings are changed.
#pragma once

#include <cstdint>
#include <string>

#include "connection.hpp"

namespace idem::bench {

// Waits until the server has read the new interval and, for zero, until no sweeper runs.
void set_cleanup_interval(Connection& admin, int seconds);

// No records, and no dirty pages that a later checkpoint would have to write.
void empty_records(Connection& admin);

// Bytes on disk.
struct Sizes {
    double table;
    double indexes;
};
Sizes record_sizes(Connection& admin);

// Bytes of a fresh copy of the records that have not expired, with the table's own fillfactor: what
// the table would be if nothing had ever been deleted from it.
double live_copy_size(Connection& admin);

// How many records of a scope the sweepers have removed since the server started.
std::int64_t swept(Connection& admin, const std::string& scope);

}  // namespace idem::bench
