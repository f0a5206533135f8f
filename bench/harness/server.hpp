// The server under test, as its operator sees it. It has to be a throw-away one: records are
// truncated and settings are changed.
#pragma once

#include <cstdint>
#include <string>

#include "harness/connection.hpp"

namespace idem::bench {

// ALTER SYSTEM, and waits until it is read. The value is in the setting's own unit.
void set_server(Connection& admin, const std::string& setting, const std::string& value);
// As the configuration file has it.
void reset_server(Connection& admin, const std::string& setting);
// The store to use: auto, sql or heap. Throws if this server has no choice and one is wanted.
void choose_store(Connection& admin, const std::string& store);

// Waits until the server has read the new interval and, for zero, until no sweeper runs.
void set_cleanup_interval(Connection& admin, int seconds);

// No records, and no dirty pages that a later checkpoint would have to write.
void empty_records(Connection& admin);

// How records lie in their table.
enum class Layout {
    AsTheyArrive,  // and so as they expire
    ByKey,         // saves the time of jumping from page to page of the index
};

// Completed records of a scope, numbered `first` to `last`. Their retention ends are spread evenly
// from `from` to `to`, seconds from now.
struct Batch {
    std::string scope;
    int first;
    int last;
    int from;
    int to;
    Layout layout;
};
void insert_records(Connection& admin, const Batch& batch);
// The key of record `number`, as SQL.
std::string key_of(const std::string& number);

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
