// The extension's functions, each one statement and one round trip. They throw what libpqxx throws.
#pragma once

#include <nlohmann/json.hpp>
#include <pqxx/transaction_base>
#include <string>

#include "call.hpp"
#include "options.hpp"

namespace idempotency {

// Whose claim it is: enough to end, prolong or check it from any connection.
struct ClaimId {
    std::string key;
    std::string scope;
    std::string principal;
    long long token = 0;
};

struct Claim {
    ClaimId id;
    int attempt = 1;
    std::string recovery_point;  // how far an attempt before this one came; empty: nowhere
    nlohmann::json state;        // what it noted there
};

// Either the right to execute, or the answer that is to be given instead.
struct Decision {
    bool execute = false;
    Claim claim;
    httplib::Response answer;
};

Decision begin(pqxx::transaction_base& tx, const Call& call, const Options& options);
void complete(pqxx::transaction_base& tx, const ClaimId& claim, const httplib::Response& response);
void fail_retryably(pqxx::transaction_base& tx, const ClaimId& claim, const std::string& error);
void extend(pqxx::transaction_base& tx, const ClaimId& claim);
void checkpoint(pqxx::transaction_base& tx, const ClaimId& claim, const std::string& point,
                const nlohmann::json& state);

}  // namespace idempotency
