// The pure helpers: immutable, parallel safe, open to PUBLIC.

#include <algorithm>
#include <cmath>

#include "core/header.hpp"
#include "core/key.hpp"
#include "core/outcome.hpp"
#include "core/time.hpp"

#include "api/arguments.hpp"
#include "api/types.hpp"
#include "pg/boundary.hpp"
#include "pg/jsonb.hpp"
#include "request/fingerprint.hpp"

namespace idem::api {

namespace {

text* joined(const std::string_view* parts, std::size_t count) {
    std::size_t size = core::joined_size(parts, count);
    auto* result = static_cast<text*>(palloc(VARHDRSZ + size));
    SET_VARSIZE(result, VARHDRSZ + size);
    core::join_parts(parts, count, VARDATA(result));
    return result;
}

// idem_fingerprint(request, method, path, exclude, fields)
Datum fingerprint(FunctionCallInfo fcinfo) {
    request::FingerprintRule rule{PG_ARGISNULL(4) ? nullptr : PG_GETARG_ARRAYTYPE_P(4),
                                  PG_ARGISNULL(3) ? nullptr : PG_GETARG_ARRAYTYPE_P(3)};
    bytea* result = request::fingerprint_of(jsonb_or_null(fcinfo, 0), text_or_null(fcinfo, 1),
                                            text_or_null(fcinfo, 2), rule);
    if (result == nullptr) PG_RETURN_NULL();
    PG_RETURN_BYTEA_P(result);
}

// idem_key(VARIADIC parts)
Datum key(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) raise_null("parts");
    pg::TextList parts = pg::text_list(PG_GETARG_ARRAYTYPE_P(0), "parts");
    if (parts.count == 0) raise_number("number of parts", 0, 1, pg::kMaxListItems);
    PG_RETURN_TEXT_P(joined(parts.items, parts.count));
}

// idem_event_id(event_type, resource_id, updated_at): the time in microseconds since 1970, so that
// no setting of the session changes the id.
Datum event_id(FunctionCallInfo fcinfo) {
    text* event_type = required_text(fcinfo, 0, "event_type");
    text* resource_id = required_text(fcinfo, 1, "resource_id");
    std::optional<TimestampTz> updated_at = moment_or_none(fcinfo, 2, "updated_at");
    if (!updated_at) raise_null("updated_at");
    std::int64_t unix_micros;
    if (__builtin_add_overflow(*updated_at, pg::kUnixEpochShift, &unix_micros))
        ereport(ERROR,
                (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("updated_at out of range"),
                 errdetail("Its microseconds since 1970 do not fit into 64 bits.")));
    char moment[32];
    int length = snprintf(moment, sizeof(moment), "%lld", static_cast<long long>(unix_micros));
    std::string_view parts[] = {pg::bytes_of(event_type),
                                pg::bytes_of(resource_id),
                                {moment, static_cast<std::size_t>(length)}};
    text* id = joined(parts, 3);
    if (core::check_key(pg::name_of(id)) == core::NameFault::None) PG_RETURN_TEXT_P(id);
    // It is too long for a key, or has a control character. A digest never equals a joined text:
    // each joined text has a ':'.
    Datum digest = DirectFunctionCall1(sha256_bytea, PointerGetDatum(id));
    PG_RETURN_TEXT_P(request::in_hex(DatumGetByteaPP(digest)));
}

// idem_parse_key(header)
Datum parse_key(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    std::string_view header = pg::bytes_of(PG_GETARG_TEXT_PP(0));
    auto* buffer = static_cast<char*>(palloc(header.size() + 1));
    long length = core::parse_key_field(header, buffer);
    if (length < 0) PG_RETURN_NULL();
    PG_RETURN_TEXT_P(pg::make_text({buffer, static_cast<std::size_t>(length)}));
}

// The problem of an outcome; nullptr: it is none. An error if the word is no outcome.
const core::Problem* problem_of(std::string_view word) {
    bool known;
    const core::Problem* problem = core::problem_of(word, &known);
    if (known) return problem;
    StringInfoData words;
    initStringInfo(&words);
    for (const core::OutcomeEntry& entry : core::kOutcomes) append_word(&words, entry.word);
    for (const core::WordProblem& entry : core::kOtherProblems) append_word(&words, entry.word);
    raise_word("outcome", pnstrdup(word.data(), word.size()), words.data);
}

// idem_http_status(outcome)
Datum http_status(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    const core::Problem* problem = problem_of(pg::bytes_of(PG_GETARG_TEXT_PP(0)));
    if (problem == nullptr) PG_RETURN_NULL();
    PG_RETURN_INT32(problem->http_status);
}

// An RFC 9457 problem document. The seconds are whole, rounded up, as Retry-After requires. A claim
// made up by the caller may contain any number.
Jsonb* problem_document(const core::Problem& problem, double retry_after) {
    pg::JsonbObject document = pg::begin_object();
    pg::add_member(&document, "type", problem.type);
    pg::add_member(&document, "title", problem.title);
    pg::add_member(&document, "status", problem.http_status);
    pg::add_member(&document, "detail", problem.detail);
    constexpr double kLongest = 1e12;
    auto seconds = static_cast<std::int64_t>(std::ceil(std::min(retry_after, kLongest)));
    if (retry_after > 0) pg::add_member(&document, "retry_after", seconds);
    return pg::end_object(&document);
}

std::string_view word_in(HeapTupleHeader claim, ClaimField field) {
    bool null;
    Datum value = field_of(claim, field, &null);
    return null ? std::string_view{} : pg::bytes_of(DatumGetTextPP(value));
}

// idem_problem(claim)
Datum problem_of_claim(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    HeapTupleHeader claim = PG_GETARG_HEAPTUPLEHEADER(0);
    bool null;
    (void)field_of(claim, ClaimField::StatusCode, &null);
    std::string_view word = core::problem_word(
        {word_in(claim, ClaimField::Outcome), word_in(claim, ClaimField::Status), !null});
    const core::Problem* problem = word.empty() ? nullptr : problem_of(word);
    if (problem == nullptr) PG_RETURN_NULL();
    Datum retry_after = field_of(claim, ClaimField::RetryAfter, &null);
    PG_RETURN_JSONB_P(problem_document(*problem, null ? 0 : DatumGetFloat8(retry_after)));
}

// idem_problem(outcome)
Datum problem_of_word(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    const core::Problem* problem = problem_of(pg::bytes_of(PG_GETARG_TEXT_PP(0)));
    if (problem == nullptr) PG_RETURN_NULL();
    PG_RETURN_JSONB_P(problem_document(*problem, 0));
}

// idem_backoff(attempt, base, cap)
Datum backoff(FunctionCallInfo fcinfo) {
    std::optional<std::int64_t> base = span_or_none(fcinfo, 1, "base", core::kRetryRange);
    std::optional<std::int64_t> cap = span_or_none(fcinfo, 2, "cap", core::kRetryRange);
    if (PG_ARGISNULL(0) || !base || !cap) PG_RETURN_NULL();
    std::int32_t attempt = PG_GETARG_INT32(0);
    if (attempt < 1) raise_number("attempt", attempt, 1, INT32_MAX);
    PG_RETURN_INTERVAL_P(pg::make_interval(core::backoff_ceiling(*base, *cap, attempt)));
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_fingerprint, idem::api::fingerprint);
IDEM_FUNCTION(idem_key, idem::api::key);
IDEM_FUNCTION(idem_event_id, idem::api::event_id);
IDEM_FUNCTION(idem_parse_key, idem::api::parse_key);
IDEM_FUNCTION(idem_http_status, idem::api::http_status);
IDEM_FUNCTION(idem_problem, idem::api::problem_of_claim);
IDEM_FUNCTION(idem_problem_text, idem::api::problem_of_word);
IDEM_FUNCTION(idem_backoff, idem::api::backoff);
