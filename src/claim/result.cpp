// Three times of a record end with an attempt: the lease, the pause before the next attempt, and
// how long the answer is kept. That counts from the claim, or from the end where little would be
// left of it; what may go on, or must be decided by an operator, never goes by age.

#include "claim/result.hpp"

#include <algorithm>

#include "core/header.hpp"

#include "claim/state.hpp"
#include "pg/jsonb.hpp"

namespace idem::claim {

namespace {

constexpr int kLongestError = 64 * 1024;  // bytes

[[noreturn]] void raise_too_large(const char* what, std::int64_t bytes, std::int64_t limit,
                                  const char* hint) {
    ereport(ERROR,
            (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("size of %s exceeds the limit", what),
             errdetail("It has %lld bytes; %lld are allowed.", static_cast<long long>(bytes),
                       static_cast<long long>(limit)),
             errhint("%s", hint)));
    pg_unreachable();
}

// The members that stay; values are passed on as they are.
Jsonb* without_dropped(Jsonb* headers, const pg::TextList& dropped) {
    auto is_dropped = [&dropped](std::string_view name) {
        return std::any_of(dropped.items, dropped.items + dropped.count,
                           [name](auto header) { return core::same_header(name, header); });
    };
    pg::JsonbObject kept = pg::begin_object();
    JsonbIterator* it = JsonbIteratorInit(&headers->root);
    JsonbValue value;
    (void)JsonbIteratorNext(&it, &value, true);
    while (JsonbIteratorNext(&it, &value, true) == WJB_KEY) {
        JsonbValue name = value;
        (void)JsonbIteratorNext(&it, &value, true);
        CHECK_FOR_INTERRUPTS();
        if (!is_dropped(pg::string_of(name))) pg::add_member(&kept, &name, &value);
    }
    return pg::end_object(&kept);
}

Jsonb* kept_headers(Jsonb* headers, const config::ScopePolicy& policy) {
    if (headers == nullptr) return nullptr;
    if (policy.drop_headers != nullptr)
        return without_dropped(headers, pg::text_list(policy.drop_headers, "drop_headers"));
    return without_dropped(headers, {const_cast<std::string_view*>(core::kDroppedHeaders),
                                     std::size(core::kDroppedHeaders)});
}

// Where no header is left, there is nothing to count.
std::int64_t size_of_headers(Jsonb* kept) {
    return kept == nullptr || JB_ROOT_COUNT(kept) == 0 ? 0 : pg::jsonb_text_size(kept);
}

std::int64_t size_of_body(const bytea* body) {
    return body == nullptr ? 0 : static_cast<std::int64_t>(VARSIZE_ANY_EXHDR(body));
}

// Nothing that happens within the window of a derived key makes it longer. The answer of work that
// has outlasted it is kept for as long once more, for those who were told to wait for it.
void keep_for_window(TimestampTz end, store::Record* record) {
    if (end < record->retained_until || record->status == core::Status::Retryable) return;
    record->retained_until = pg::after(end, record->retained_until - record->created_at);
    record->expires_at = record->retained_until;
}

}  // namespace

void check_size(const char* what, Jsonb* value, const core::Policy& policy) {
    if (value == nullptr) return;
    std::int64_t bytes = pg::jsonb_text_size(value);
    if (bytes > policy.max_body_bytes)
        raise_too_large(
            what, bytes, policy.max_body_bytes,
            "Raise max_body_bytes in the scope's policy or idempotency.max_body_bytes.");
}

text* clipped_error(text* error) {
    if (error == nullptr) return nullptr;
    std::string_view bytes = pg::bytes_of(error);
    int length = static_cast<int>(bytes.size());
    return pg::make_text(bytes.substr(
        0, static_cast<std::size_t>(pg_mbcliplen(bytes.data(), length, kLongestError))));
}

bool fits(const Response& response, const config::ScopePolicy& policy) {
    std::int64_t limit = policy.values.max_body_bytes;
    return size_of_headers(kept_headers(response.headers, policy)) <= limit &&
           (size_of_body(response.body) <= limit ||
            policy.values.on_large_body == core::OnLargeBody::Omit);
}

void keep_response(const Response& response, const config::ScopePolicy& policy,
                   store::Record* record) {
    std::int64_t limit = policy.values.max_body_bytes;
    Jsonb* headers = kept_headers(response.headers, policy);
    if (size_of_headers(headers) > limit) check_size("headers", headers, policy.values);
    std::int64_t bytes = size_of_body(response.body);
    if (bytes > limit && policy.values.on_large_body != core::OnLargeBody::Omit)
        raise_too_large("body", bytes, limit,
                        "Raise max_body_bytes in the scope's policy or "
                        "idempotency.max_body_bytes, or set on_large_body to \"omit\".");
    record->status_code = response.status_code;
    record->headers = headers;
    record->body_omitted = bytes > limit;
    record->body = record->body_omitted ? nullptr : response.body;
}

void mark_ended(core::Status status, store::Record* record) {
    record->status = status;
    record->finished_at = GetCurrentTimestamp();
    record->lease_until = pg::kNoTime;
    record->next_attempt_at = pg::kNoTime;
    name_no_backend(record);
    record->error = nullptr;
    record->resolved_by = nullptr;
    if (status != core::Status::Completed && status != core::Status::Failed) return;
    record->recovery_point = nullptr;
    record->state = nullptr;
}

void allow_as_claimed(const store::Record& record, core::Policy* policy) {
    policy->max_body_bytes = Max(policy->max_body_bytes, record.body_limit);
    if (record.omit_large_body) policy->on_large_body = core::OnLargeBody::Omit;
}

void keep_if_half_way(store::Record* record) {
    bool half_way = record->status == core::Status::Retryable && !record->recovery_point.is_null();
    if (!half_way || store::is_derived(*record)) return;
    record->expires_at = DT_NOEND;
    record->retained_until = DT_NOEND;
}

bool attempts_used_up(const core::Policy& policy, const store::Record& record) {
    return policy.max_attempts > 0 && record.attempt >= policy.max_attempts;
}

bool is_unknown_if_silent(const core::Policy& policy, const store::Record& record) {
    return record.if_silent == core::IfSilent::Unknown ||
           policy.on_lease_expiry == core::OnLeaseExpiry::Unknown;
}

void keep_exhausted(const core::Policy& policy, store::Record* record) {
    std::int64_t retention = TIMESTAMP_IS_NOEND(record->retained_until)
                                 ? Max(policy.retention, policy.ttl)
                                 : record->retained_until - record->claimed_at;
    if (!store::is_derived(*record))
        record->retained_until = pg::after(record->finished_at, retention);
    record->expires_at = record->retained_until;
}

void mark_silent(const core::Policy& policy, store::Record* record) {
    TimestampTz silent_since = record->lease_until;
    store::Kept<text> last_error = record->error;
    mark_ended(core::Status::Exhausted, record);
    record->lease_until = silent_since;
    record->error = last_error;
    keep_exhausted(policy, record);
}

void keep_long_enough(TimestampTz end, store::Record* record) {
    if (store::is_derived(*record)) return keep_for_window(end, record);
    std::int64_t ttl = record->expires_at - record->claimed_at;
    std::int64_t retention = record->retained_until - record->claimed_at;
    if (record->expires_at - end >= ttl / 2) return;
    record->expires_at = pg::after(end, ttl);
    record->retained_until = pg::after(end, retention);
}

void keep_as_fresh(const core::Policy& policy, store::Record* record) {
    if (store::is_derived(*record)) return keep_for_window(record->finished_at, record);
    std::int64_t retention = Max(policy.retention, policy.ttl);
    if (TIMESTAMP_IS_NOEND(record->expires_at))
        record->expires_at = record->retained_until = record->finished_at;
    record->expires_at = Max(record->expires_at, pg::after(record->finished_at, policy.ttl));
    record->retained_until = Max(record->retained_until, pg::after(record->finished_at, retention));
}

}  // namespace idem::claim
