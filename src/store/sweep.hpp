// What removes records whose retention is over.
#pragma once

#include "core/outcome.hpp"

#include "pg/pg.hpp"

namespace idem::store {

// The condition on the status of a record that may be removed by its age. Neither a claim in
// progress nor an unknown record may.
static_assert(static_cast<char>(core::Status::InProgress) == 'i' &&
              static_cast<char>(core::Status::Unknown) == 'u');
inline constexpr const char* kGoesByAge = "status <> ALL ('{i,u}'::\"char\"[])";

// What to sweep: rows whose retention ended after `from` and not after `until`, at most `limit` of
// them. A caller who goes on where the last batch ended need not walk over its dead rows again.
// `swept`, which may be nullptr, is told how many rows of which scope went.
struct Sweep {
    TimestampTz from;
    TimestampTz until;
    std::int64_t limit;
    void (*swept)(std::string_view scope, std::int64_t rows);
};

struct Swept {
    std::int64_t rows;
    TimestampTz last;  // when the retention of the youngest of them ended
};

// Removes rows that may go, oldest first, passing over rows that others have locked. Never a row
// without a result: it may still get one. An error where any access to a record is one.
Swept sweep(const Sweep& which);

// Of a table beside the records, one of ours or a shard of it: removes up to `limit` rows whose
// `column` is not after `until`, likewise oldest first. Returns how many.
std::int64_t sweep_aged(const char* ours, Oid table, const char* column, TimestampTz until,
                        std::int64_t limit);

// What a sweep of this node until then would remove.
struct Backlog {
    std::int64_t rows;  // counted up to a limit
    TimestampTz
        oldest;  // when the retention of the oldest of them ended; pg::kNoTime: there is none
};

Backlog backlog(TimestampTz until, std::int64_t limit);

}  // namespace idem::store
