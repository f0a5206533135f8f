#include "leased_claim.hpp"

#include "problem.hpp"

namespace idempotency {

LeasedClaim::LeasedClaim(ConnectionPool& pool, Claim claim, std::chrono::milliseconds lease)
    : pool_(pool), claim_(std::move(claim)), heartbeat_(pool, claim_.id, lease) {}

void LeasedClaim::ensure_held() const {
    if (heartbeat_.lost()) throw Refusal(claim_lost());
}

void LeasedClaim::step(const std::string& recovery_point, const Step& work) {
    ensure_held();
    const auto connection = pool_.lend();
    pqxx::work tx(**connection);
    nlohmann::json state = work(tx);
    checkpoint(tx, claim_.id, recovery_point, state);
    tx.commit();
    claim_.recovery_point = recovery_point;
    claim_.state = std::move(state);
}

httplib::Response LeasedClaim::complete(const LastStep& work) {
    ensure_held();
    const auto connection = pool_.lend();
    pqxx::work tx(**connection);
    httplib::Response response = work(tx);
    idempotency::complete(tx, claim_.id, response);
    tx.commit();
    ended_ = true;
    return response;
}

void LeasedClaim::fail(const std::string& error) {
    const auto connection = pool_.lend();
    pqxx::work tx(**connection);
    fail_retryably(tx, claim_.id, error);
    tx.commit();
    ended_ = true;
}

}  // namespace idempotency
