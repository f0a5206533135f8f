#include <memory>
#include <random>

#include "contenders/business.hpp"
#include "contenders/contenders.hpp"

namespace idem::bench {
namespace {

constexpr int kLeaseMillis = 60 * 1000;

// Picks keys at random, from a beginning of its own.
class Picker {
  public:
    explicit Picker(const std::vector<std::string>& keys) : keys_(&keys) {}
    const std::string& next() { return (*keys_)[random_() % keys_->size()]; }

  private:
    const std::vector<std::string>* keys_;
    std::mt19937_64 random_{std::random_device{}()};
};

// As a body looks in the text format of bytea.
std::string body_as_bytea() {
    std::string hex = "\\x";
    for (unsigned char byte : response_body()) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return hex;
}

}  // namespace

WorkFactory select_by_key(const std::vector<std::string>& keys) {
    return [&keys](Client& client) -> Work {
        client.sql.prepare("look",
                           "SELECT body, status_code, status FROM bench.record_copy"
                           " WHERE scope = 'bench' AND principal = '' AND key = $1");
        return [&sql = client.sql, picker = Picker(keys), body = body_as_bytea()]() mutable {
            expect(sql.ask({"look", {picker.next()}}), body.c_str());
        };
    };
}

WorkFactory ours_replay(const std::vector<std::string>& keys) {
    return [&keys](Client& client) -> Work {
        client.sql.prepare("claim",
                           "SELECT body, status_code, outcome"
                           " FROM idem_begin($1, scope => 'bench')");
        return [&sql = client.sql, picker = Picker(keys), body = body_as_bytea()]() mutable {
            Row answer = sql.round_trip({{"claim", {picker.next()}}}).front();
            expect(answer.at(0), body.c_str());
            expect(answer.at(2), "replay");
        };
    };
}

WorkFactory redis_replay(const std::vector<std::string>& keys) {
    return [&keys](Client& client) -> Work {
        return [&redis = client.redis(), picker = Picker(keys)]() mutable {
            const std::string& key = picker.next();
            expect(redis.set_if_absent(key, "running", kLeaseMillis) ? "new" : "known", "known");
            expect(redis.get(key), response_body().c_str());
        };
    };
}

WorkFactory redis_replay_pipelined(const std::vector<std::string>& keys) {
    return [&keys](Client& client) -> Work {
        return [&redis = client.redis(), picker = Picker(keys)]() mutable {
            expect(redis.claim_and_get(picker.next(), "running", kLeaseMillis),
                   response_body().c_str());
        };
    };
}

}  // namespace idem::bench
