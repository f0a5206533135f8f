#include "config/policy_check.hpp"

#include "core/header.hpp"
#include "core/pattern.hpp"
#include "core/policy.hpp"
#include "core/sqlstate.hpp"

#include "pg/datum.hpp"

namespace idem::config {

namespace {

struct Span {
    PolicyColumn column;
    core::DurationRange range;
};
constexpr Span kSpans[] = {
    {kTtl, core::kTtlRange},
    {kRetention, core::kRetentionRange},
    {kLease, core::kLeaseRange},
    {kWait, core::kWaitRange},
    {kRetryBase, core::kRetryRange},
    {kRetryCap, core::kRetryRange},
    {kMemoryBefore, core::kRetentionRange},
};

// Of two spans, the first may not be the longer one.
constexpr PolicyColumn kInOrder[][2] = {{kTtl, kRetention}, {kRetryBase, kRetryCap}};

std::int64_t micros_at(const PolicyRow& row, PolicyColumn column) {
    return pg::micros_of(DatumGetIntervalP(row.values[column]));
}

bool is_in_range(const PolicyRow& row, PolicyColumn column, std::int64_t least, std::int64_t most) {
    if (row.nulls[column]) return true;
    std::int64_t value = DatumGetInt32(row.values[column]);
    return value >= least && value <= most;
}

bool are_in_order(const PolicyRow& row, PolicyColumn shorter, PolicyColumn longer) {
    return row.nulls[shorter] || row.nulls[longer] ||
           micros_at(row, shorter) <= micros_at(row, longer);
}

template <typename Known>
bool is_known(const PolicyRow& row, PolicyColumn column, Known word_known) {
    return row.nulls[column] ||
           word_known(pg::bytes_of(DatumGetPointer(row.values[column]))).has_value();
}

bool has_null_elements(const PolicyRow& row, PolicyColumn column) {
    return !row.nulls[column] && array_contains_nulls(DatumGetArrayTypeP(row.values[column]));
}

// Whether each element is fit, and none is null.
bool are_all(const PolicyRow& row, PolicyColumn column, bool (*fit)(std::string_view)) {
    if (row.nulls[column]) return true;
    if (has_null_elements(row, column)) return false;
    pg::TextList words =
        pg::text_list(DatumGetArrayTypeP(row.values[column]), kPolicyColumnTypes[column].name);
    for (std::size_t i = 0; i < words.count; i++)
        if (!fit(words.items[i])) return false;
    return true;
}

bool is_pattern(const PolicyRow& row) {
    core::Name pattern = pg::name_of(DatumGetTextPP(row.values[kPattern]));
    return core::check_pattern(pattern.bytes, pattern.chars, pattern.utf8) ==
           core::PatternFault::None;
}

const Span* bad_span(const PolicyRow& row) {
    for (const Span& span : kSpans)
        if (!row.nulls[span.column] &&
            core::check_duration(micros_at(row, span.column), span.range) !=
                core::DurationFault::None)
            return &span;
    return nullptr;
}

// kPolicyColumns: none.
PolicyColumn first_bad(const PolicyRow& row) {
    if (!is_pattern(row)) return kPattern;
    if (const Span* span = bad_span(row)) return span->column;
    for (const auto& pair : kInOrder)
        if (!are_in_order(row, pair[0], pair[1])) return pair[1];
    if (row.nulls[kSince] != row.nulls[kMemoryBefore]) return kMemoryBefore;
    if (!is_in_range(row, kMaxAttempts, 1, INT32_MAX)) return kMaxAttempts;
    if (!is_in_range(row, kMaxBodyBytes, 0, core::kLargestBody)) return kMaxBodyBytes;
    if (!is_known(row, kOnLeaseExpiry, core::on_lease_expiry_from_word)) return kOnLeaseExpiry;
    if (!is_known(row, kOnLargeBody, core::on_large_body_from_word)) return kOnLargeBody;
    if (has_null_elements(row, kExcludeFields)) return kExcludeFields;
    if (!are_all(row, kDropHeaders, core::is_header_name)) return kDropHeaders;
    if (!are_all(row, kFinalErrors, core::may_be_final)) return kFinalErrors;
    return kPolicyColumns;
}

}  // namespace

const char* unusable_column(const PolicyRow& row) {
    PolicyColumn bad = first_bad(row);
    return bad == kPolicyColumns ? nullptr : kPolicyColumnTypes[bad].name;
}

}  // namespace idem::config
