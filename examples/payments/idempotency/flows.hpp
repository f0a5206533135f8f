// The three ways through a protected route, one file each.
#pragma once

#include <httplib.h>
#include <functional>
#include <pqxx/pqxx>

#include "call.hpp"
#include "connection_pool.hpp"
#include "leased_claim.hpp"
#include "options.hpp"

namespace idempotency {

// All of its effects go through the transaction, which also holds the claim and the response.
using TransactionHandler = std::function<httplib::Response(pqxx::work&, const Call&)>;

// Has effects outside the database; works in steps.
using LeasedHandler = std::function<httplib::Response(LeasedClaim&, const Call&)>;

// Needs no database.
using PlainHandler = std::function<httplib::Response(const Call&)>;

httplib::Response run_in_transaction(ConnectionPool& pool, Call& call, const Options& options,
                                     const TransactionHandler& handler);
httplib::Response run_leased(ConnectionPool& pool, Call& call, const Options& options,
                             const LeasedHandler& handler);
httplib::Response run_plain(ConnectionPool& pool, Call& call, const Options& options,
                            const PlainHandler& handler);

// A handler's 5xx is no answer to keep: it says that the request has not been dealt with.
inline bool is_final(const httplib::Response& response) {
    return response.status < 500;
}

}  // namespace idempotency
