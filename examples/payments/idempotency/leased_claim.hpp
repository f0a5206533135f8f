// What the handler of a leased route works with: an operation in steps, which survives the process.
#pragma once

#include <httplib.h>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <pqxx/pqxx>
#include <string>

#include "connection_pool.hpp"
#include "heartbeat.hpp"
#include "protocol.hpp"

namespace idempotency {

class LeasedClaim {
  public:
    using Step = std::function<nlohmann::json(pqxx::work&)>;  // returns the state to note
    using LastStep = std::function<httplib::Response(pqxx::work&)>;

    LeasedClaim(ConnectionPool& pool, Claim claim, std::chrono::milliseconds lease);

    // Where an attempt before this one came to, and what it noted there; "" and null at the start.
    const std::string& recovery_point() const noexcept { return claim_.recovery_point; }
    const nlohmann::json& state() const noexcept { return claim_.state; }
    int attempt() const noexcept { return claim_.attempt; }

    // To be called before each effect outside the database. Throws Refusal when another attempt has
    // taken over. That can still happen a moment later: so the effect carries a key of its own.
    void ensure_held() const;

    // A step's effects in the database and the recovery point behind it, in one transaction. A
    // holder that has lost its claim changes nothing.
    void step(const std::string& recovery_point, const Step& work);

    // The last step's effects and the response, in one transaction.
    httplib::Response complete(const LastStep& work);

    // Gives the claim up, to be tried again from the last recovery point.
    void fail(const std::string& error);

    // Whether complete or fail has been reached.
    bool ended() const noexcept { return ended_; }

  private:
    ConnectionPool& pool_;
    Claim claim_;
    bool ended_ = false;
    Heartbeat heartbeat_;
};

}  // namespace idempotency
