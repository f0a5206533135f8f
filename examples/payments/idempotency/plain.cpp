#include <optional>

#include "failure.hpp"
#include "flows.hpp"

namespace idempotency {

// The claim is a transaction around the handler, which uses nothing of it. So the answer stands
// whatever becomes of the database, if the route says so: it is merely not protected.
httplib::Response run_plain(ConnectionPool& pool, Call& call, const Options& options,
                            const PlainHandler& handler) {
    std::optional<httplib::Response> answered;
    const auto handle = [&](pqxx::work&, const Call& claimed) {
        answered = handler(claimed);
        return *answered;
    };
    try {
        return run_in_transaction(pool, call, options, handle);
    } catch (const std::exception& failure) {
        const bool open = options.without_database == WithoutDatabase::Proceed;
        if (!open || !is_connection_failure(failure)) throw;
        return answered ? *answered : handler(call);
    }
}

}  // namespace idempotency
