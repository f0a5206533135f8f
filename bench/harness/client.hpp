// What a contender has to work with: a connection to PostgreSQL and, for who asks, one to Redis.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/connection.hpp"
#include "harness/redis.hpp"

namespace idem::bench {

class Client {
  public:
    explicit Client(const std::string& name, const Session& session = {}) : sql(name, session) {}

    Connection sql;

    // Connected when first asked for.
    Redis& redis() {
        if (redis_ == nullptr) redis_ = std::make_unique<Redis>();
        return *redis_;
    }

    std::uint64_t round_trips() const {
        return sql.round_trips() + (redis_ == nullptr ? 0 : redis_->round_trips());
    }

  private:
    std::unique_ptr<Redis> redis_;
};

}  // namespace idem::bench
