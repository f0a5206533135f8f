#include "flows.hpp"
#include "protocol.hpp"

namespace idempotency {
namespace {

// Committed on its own, so that the claim outlives this process.
Decision begin_lease(ConnectionPool& pool, const Call& call, const Options& options) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    Decision decision = begin(tx, call, options);
    tx.commit();
    return decision;
}

httplib::Response finish(LeasedClaim& claim, httplib::Response response) {
    if (claim.ended()) return response;
    if (is_final(response)) return claim.complete([&](pqxx::work&) { return response; });
    claim.fail("answered " + std::to_string(response.status));
    return response;
}

// For the exception that is on its way out. Where this fails too, the lease runs out by itself and
// the next request goes on from the last recovery point.
void give_up(LeasedClaim& claim) noexcept try {
    if (!claim.ended()) claim.fail("the handler failed");
} catch (const std::exception&) {
    return;
}

}  // namespace

// No connection is held while the handler talks to others: each step borrows one.
httplib::Response run_leased(ConnectionPool& pool, Call& call, const Options& options,
                             const LeasedHandler& handler) {
    Decision decision = begin_lease(pool, call, options);
    if (!decision.execute) return decision.answer;

    call.key = decision.claim.id.key;
    LeasedClaim claim(pool, std::move(decision.claim), options.lease);
    try {
        return finish(claim, handler(claim, call));
    } catch (...) {
        give_up(claim);
        throw;
    }
}

}  // namespace idempotency
