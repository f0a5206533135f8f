// The extension's functions, each one statement and one round trip. They throw the driver's
// exceptions. The statements are those of clients/README.md.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "contract.hpp"
#include "driver.hpp"
#include "http.hpp"
#include "text.hpp"

namespace idempotency {

using Milliseconds = std::chrono::milliseconds;

// The identity of a claim: enough to end, prolong or check it from any connection.
struct ClaimId {
    std::string key;
    std::string scope;
    std::string principal;
    std::optional<std::string> token;
};

// The arguments of idem_begin.
struct Call {
    std::optional<std::string> key;               // none: one is generated, or derived
    std::optional<std::string> request;           // JSON
    std::string media_type = "application/json";  // of the request
    std::optional<std::string> digest;            // of a body that is not JSON
    std::optional<std::string> method;
    std::optional<std::string> target;
    std::vector<std::string> exclude;
    std::string scope;
    std::string principal;
    std::optional<Milliseconds> ttl;
    std::optional<Milliseconds> lease;
    std::optional<Milliseconds> wait;
    std::optional<std::string> holder;
    // Without a key: the server derives one from the request, and forgets it after this time.
    std::optional<Milliseconds> derive;
};

// JSON that jsonb refuses is compared as bytes.
inline void compare_as_bytes(Call& call) {
    if (!call.digest) {
        call.digest = digest_of_bytes(call.method.value_or(""), call.target.value_or(""),
                                      call.media_type, *call.request);
    }
    call.request.reset();
}

// The answer of idem_begin.
struct Decision {
    std::string outcome;
    ClaimId claim;
    int attempt = 1;
    std::string status;
    std::optional<int> status_code;
    nlohmann::json headers;  // null: none
    std::string body;
    bool body_omitted = false;
    std::string error;
    std::string recovery_point;  // of an earlier attempt; empty: none
    nlohmann::json state;        // noted there
    std::optional<double> retry_after;

    bool execute() const { return outcome == "execute"; }
};

// ---- headers as they are stored ----

// Fields of one hop or one answer.
inline bool is_of_one_answer(const std::string& name) {
    for (const char* each : contract::kNotStored) {
        if (same_name(name, each)) return true;
    }
    return false;
}

inline bool is_field_value(const std::string& value) {
    const auto is_control = [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; };
    return is_utf8(value) && std::none_of(value.begin(), value.end(), is_control);
}

inline bool is_field_name(const std::string& name) {
    const auto is_token = [](unsigned char c) {
        return std::isalnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) !=
                                      std::string_view::npos;
    };
    return !name.empty() && std::all_of(name.begin(), name.end(), is_token);
}

// Without the fields that could not be stored, so that the first answer equals its replays: storing
// them would fail, on a leased route after the effect.
inline Answer storable(Answer answer) {
    auto& headers = answer.headers;
    const auto is_bad = [](const auto& field) {
        return !is_field_name(field.first) || !is_field_value(field.second);
    };
    headers.erase(std::remove_if(headers.begin(), headers.end(), is_bad), headers.end());
    return answer;
}

// The values of a name that occurs more than once become an array, in order.
inline std::string stored_headers(const Fields& headers) {
    auto stored = nlohmann::json::object();
    for (const auto& field : headers) {
        const auto& name = field.first;
        const auto items = stored.items();
        const bool known = std::any_of(items.begin(), items.end(), [&](const auto& item) {
            return same_name(item.key(), name);
        });
        if (known || is_of_one_answer(name)) continue;
        const auto values = values_of(headers, name);
        stored[name] = values.size() == 1 ? nlohmann::json(values[0]) : nlohmann::json(values);
    }
    return stored.dump();
}

inline Fields fields_of(const nlohmann::json& stored) {
    Fields headers;
    if (!stored.is_object()) return headers;
    for (const auto& [name, value] : stored.items()) {
        const auto values = value.is_array() ? value : nlohmann::json::array({value});
        for (const auto& each : values) {
            if (each.is_string()) headers.emplace_back(name, each.template get<std::string>());
        }
    }
    return headers;
}

namespace protocol {

using Run = std::function<Row(const char* statement, const Values& values)>;

inline Value number(const std::optional<Milliseconds>& duration) {
    return duration ? Value(std::to_string(duration->count())) : std::nullopt;
}

inline Value bytes(const std::optional<std::string>& value) {
    return value ? Value(to_bytea(*value)) : std::nullopt;
}

inline nlohmann::json json_of(const Value& value) {
    return value ? nlohmann::json::parse(*value) : nlohmann::json();
}

inline Statement begin(const Call& call) {
    return {contract::kBegin,
            {call.key, call.request, bytes(call.digest), call.method, call.target,
             to_array(call.exclude), call.scope, call.principal,
             number(call.ttl ? call.ttl : call.derive), number(call.lease), number(call.wait),
             call.holder, call.lease ? "f" : "t", number(call.derive)}};
}

// The answer to `begin`.
inline Decision decision_of(const Row& row, const Call& call) {
    Decision decision;
    decision.outcome = row.at(0).value();
    decision.claim = {row.at(1).value_or(""), call.scope, call.principal, row.at(2)};
    decision.attempt = std::stoi(row.at(3).value_or("1"));
    decision.status = row.at(4).value_or("");
    if (row.at(5)) decision.status_code = std::stoi(*row.at(5));
    decision.headers = json_of(row.at(6));
    if (row.at(7)) decision.body = from_bytea(*row.at(7));
    decision.body_omitted = row.at(8) == "t";
    decision.error = row.at(9).value_or("");
    decision.recovery_point = row.at(10).value_or("");
    decision.state = json_of(row.at(11));
    if (row.at(12)) decision.retry_after = std::stod(*row.at(12));
    return decision;
}

// Without a status.
inline Statement complete(const ClaimId& claim) {
    return {contract::kComplete,
            {claim.key, std::nullopt, std::nullopt, std::nullopt, claim.scope, claim.principal,
             claim.token}};
}

// Answers false if the same claim was completed before.
inline Statement complete(const ClaimId& claim, int status, const std::optional<std::string>& body,
                          const Fields& headers) {
    return {contract::kComplete,
            {claim.key, std::to_string(status), bytes(body), stored_headers(headers), claim.scope,
             claim.principal, claim.token}};
}

// Uncertain: the work may have had its effect, and the policy may forbid to run it again.
inline void fail(const Run& run, const ClaimId& claim, const std::string& error, bool uncertain) {
    run(contract::kFail, {claim.key, is_utf8(error) ? error : "failed", claim.scope,
                          claim.principal, claim.token, uncertain ? "t" : "f"});
}

inline Statement unknown(const ClaimId& claim, const std::string& error,
                         const std::optional<std::string>& reference) {
    return {contract::kUnknown,
            {claim.key, is_utf8(error) ? error : "unknown",
             reference && is_utf8(*reference) ? reference : std::nullopt, claim.scope,
             claim.principal, claim.token}};
}

inline void extend(const Run& run, const ClaimId& claim) {
    run(contract::kExtend, {claim.key, claim.token, claim.scope, claim.principal});
}

inline Statement checkpoint(const ClaimId& claim, const std::string& point,
                            const nlohmann::json& state) {
    return {contract::kCheckpoint,
            {claim.key, point, state.dump(), claim.scope, claim.principal, claim.token}};
}

inline bool once(const Run& run, const std::string& key, const std::string& scope,
                 const std::string& principal) {
    return run(contract::kOnce, {key, scope, principal}).at(0) == "t";
}

// Its rows are claims.
inline Statement due(const std::string& scope, std::size_t most, Milliseconds lease,
                     const std::optional<std::string>& holder) {
    return {contract::kDue, {scope, std::to_string(most), number(lease), holder}};
}

inline nlohmann::json problem(const Run& run, const std::string& word) {
    return json_of(run(contract::kProblem, {word}).at(0));
}

}  // namespace protocol
}  // namespace idempotency
