#include "protocol.hpp"

#include <pqxx/except>
#include <pqxx/result>

#include "bytea.hpp"
#include "problem.hpp"
#include "stored_response.hpp"

namespace idempotency {
namespace {

// A key that is missing or malformed is an outcome like any other, so one statement decides it all.
// $1 the header field, or NULL; $2 whether to generate a key for NULL; $3 body; $4 method; $5
// target, with the query string; $6 excluded fields as JSON; $7 scope; $8 principal; $9 ttl, $10
// lease, $11 wait in milliseconds.
constexpr char kBegin[] = R"(
WITH asked AS MATERIALIZED (
    SELECT CASE
               WHEN $1::text IS NULL AND NOT $2::boolean
                   THEN jsonb_populate_record(NULL::idem_claim, '{"outcome": "missing_key"}')
               WHEN $1 IS NOT NULL AND parsed IS NULL
                   THEN jsonb_populate_record(NULL::idem_claim, '{"outcome": "bad_key"}')
               ELSE idem_begin(parsed,
                               request => $3::jsonb,
                               fingerprint => idem_fingerprint($3::jsonb, $4, $5,
                                   ARRAY(SELECT jsonb_array_elements_text($6::jsonb))),
                               scope => $7, principal => $8,
                               ttl => $9::bigint * interval '1 ms',
                               lease => $10::bigint * interval '1 ms',
                               wait => $11::bigint * interval '1 ms',
                               holder => current_setting('application_name'))
           END AS claim
      FROM idem_parse_key($1) AS parsed)
SELECT (claim).outcome, (claim).key, (claim).token, (claim).attempt, (claim).recovery_point,
       (claim).state, (claim).status_code, (claim).headers, (claim).body,
       greatest(1, ceil((claim).retry_after))::int AS retry_after,
       idem_problem(claim) AS problem
  FROM asked)";

constexpr char kComplete[] =
    "SELECT idem_complete($1, $2::int, $3::bytea, $4::jsonb,"
    "                     scope => $5, principal => $6, token => $7)";
constexpr char kFail[] =
    "SELECT idem_fail($1, $2, retryable => true, scope => $3, principal => $4, token => $5)";
constexpr char kExtend[] = "SELECT idem_extend($1, $2, scope => $3, principal => $4)";
constexpr char kCheckpoint[] =
    "SELECT idem_checkpoint($1, $2, $3::jsonb, scope => $4, principal => $5, token => $6)";

std::optional<long long> milliseconds(const std::optional<std::chrono::milliseconds>& duration) {
    if (!duration) return std::nullopt;
    return duration->count();
}

pqxx::row ask(pqxx::transaction_base& tx, const Call& call, const Options& options) {
    return tx.exec_params1(kBegin, key_field(call.request, options.strict_keys),
                           options.keys == Keys::Generated, call.request.body, call.request.method,
                           call.request.target, nlohmann::json(options.exclude).dump(),
                           options.scope, call.principal, milliseconds(options.ttl),
                           options.lease.count(), options.wait.count());
}

Claim claim_in(const pqxx::row& row, const Call& call, const Options& options) {
    Claim claim;
    claim.id = {row["key"].as<std::string>(), options.scope, call.principal,
                row["token"].as<long long>()};
    claim.attempt = row["attempt"].as<int>();
    claim.recovery_point = row["recovery_point"].as<std::string>("");
    claim.state = nlohmann::json::parse(row["state"].as<std::string>("null"));
    return claim;
}

httplib::Response replay_in(const pqxx::row& row) {
    return stored_response(row["status_code"].as<int>(200), row["headers"].as<std::string>("{}"),
                           from_bytea(row["body"].as<std::string>("\\x")));
}

// Where coming again helps, the answer says when.
httplib::Response problem_in(const pqxx::row& row) {
    auto response = problem(nlohmann::json::parse(row["problem"].as<std::string>()));
    const auto outcome = row["outcome"].as<std::string>();
    if (outcome == "replay") response.set_header("Idempotent-Replayed", "true");
    if (outcome == "in_progress" || outcome == "retry_later") {
        response.set_header("Retry-After", std::to_string(row["retry_after"].as<int>(1)));
    }
    return response;
}

}  // namespace

// The database is stricter than JSON: no "\u0000" in strings, for one.
Decision begin(pqxx::transaction_base& tx, const Call& call, const Options& options) try {
    const pqxx::row row = ask(tx, call, options);
    const auto outcome = row["outcome"].as<std::string>();
    if (outcome == "execute") return {true, claim_in(row, call, options), {}};
    return {false, {}, row["problem"].is_null() ? replay_in(row) : problem_in(row)};
} catch (const pqxx::data_exception&) {
    throw Refusal(bad_json());
}

void complete(pqxx::transaction_base& tx, const ClaimId& claim, const httplib::Response& response) {
    tx.exec_params(kComplete, claim.key, response.status, to_bytea(response.body),
                   stored_headers(response), claim.scope, claim.principal, claim.token);
}

void fail_retryably(pqxx::transaction_base& tx, const ClaimId& claim, const std::string& error) {
    tx.exec_params(kFail, claim.key, error, claim.scope, claim.principal, claim.token);
}

void extend(pqxx::transaction_base& tx, const ClaimId& claim) {
    tx.exec_params(kExtend, claim.key, claim.token, claim.scope, claim.principal);
}

void checkpoint(pqxx::transaction_base& tx, const ClaimId& claim, const std::string& point,
                const nlohmann::json& state) {
    tx.exec_params(kCheckpoint, claim.key, point, state.dump(), claim.scope, claim.principal,
                   claim.token);
}

}  // namespace idempotency
