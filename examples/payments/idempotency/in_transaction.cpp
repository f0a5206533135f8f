#include "flows.hpp"
#include "protocol.hpp"

namespace idempotency {

// Claim, effects and response become visible together, at the commit, or not at all: a handler that
// throws, answers 5xx or dies takes all of it along, and the key is free at once.
httplib::Response run_in_transaction(ConnectionPool& pool, Call& call, const Options& options,
                                     const TransactionHandler& handler) {
    const auto connection = pool.lend();
    pqxx::work tx(**connection);
    const Decision decision = begin(tx, call, options);
    if (!decision.execute) return decision.answer;

    call.key = decision.claim.id.key;
    httplib::Response response = handler(tx, call);
    if (!is_final(response)) return response;
    complete(tx, decision.claim.id, response);
    tx.commit();
    return response;
}

}  // namespace idempotency
