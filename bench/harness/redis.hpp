// A connection to the Redis server whose Unix socket $REDIS_SOCKET names. Throws what it refuses.
#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

namespace idem::bench {

class Redis {
  public:
    Redis();

    // SET key value NX PX lifetime: false if the key is there already.
    bool set_if_absent(const std::string& key, const std::string& value, int lifetime_ms);
    // SET key value PX lifetime.
    void set(const std::string& key, const std::string& value, int lifetime_ms);
    // GET key; '' if there is none.
    std::string get(const std::string& key);
    // SET ... NX and GET in one round trip; what GET answers.
    std::string claim_and_get(const std::string& key, const std::string& value, int lifetime_ms);
    void forget_all();
    std::string version();

    // The two halves of set_if_absent, for who has something else to do meanwhile.
    void send_set_if_absent(const std::string& key, const std::string& value, int lifetime_ms);
    bool receive_was_absent();

    std::uint64_t round_trips() const { return round_trips_; }

  private:
    using Reply = std::unique_ptr<void, decltype(&freeReplyObject)>;

    void append(std::initializer_list<std::string> command);
    void flush();
    Reply receive();
    Reply ask(std::initializer_list<std::string> command);
    void require(bool ok) const;

    std::unique_ptr<redisContext, decltype(&redisFree)> handle_;
    std::uint64_t round_trips_ = 0;
};

}  // namespace idem::bench
