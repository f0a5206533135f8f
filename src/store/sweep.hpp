// Removes expired records.
#pragma once

#include "core/outcome.hpp"

#include "pg/pg.hpp"

namespace idem::store {

// The condition on the status of a record that may be removed by age: neither a claim in progress
// nor an unknown record.
static_assert(static_cast<char>(core::Status::InProgress) == 'i' &&
              static_cast<char>(core::Status::Unknown) == 'u');
inline constexpr const char* kGoesByAge = "status <> ALL ('{i,u}'::\"char\"[])";

// What to sweep: at most `limit` rows whose retention ended after `from` and not after `until`. A
// caller that continues where the last batch ended does not read its dead rows again. `swept`,
// which may be nullptr, is told the number of removed rows per scope.
struct Sweep {
    TimestampTz from;
    TimestampTz until;
    std::int64_t limit;
    void (*swept)(std::string_view scope, std::int64_t rows);
};

struct Swept {
    std::int64_t rows;
    TimestampTz last;  // the latest end of the retention among them
};

// Removes expired rows, oldest first, and skips locked rows. Never a row without a result: it may
// still get one. The errors are those of any access to a record.
Swept sweep(const Sweep& which);

// For a table beside the records, one of ours or a shard of it: removes up to `limit` rows whose
// `column` is not after `until`, also oldest first. Returns their number.
std::int64_t sweep_aged(const char* ours, Oid table, const char* column, TimestampTz until,
                        std::int64_t limit);

// The rows that a sweep of this node until then would remove.
struct Backlog {
    std::int64_t rows;   // counted up to a limit
    TimestampTz oldest;  // the end of the retention of the oldest; pg::kNoTime: there is none
};

Backlog backlog(TimestampTz until, std::int64_t limit);

}  // namespace idem::store
