// The cache beside the database. Not safe: a crash between COMMIT and the second SET forgets that
// the payment was made.

#include <stdexcept>

#include "contenders/business.hpp"
#include "contenders/contenders.hpp"

namespace idem::bench {
namespace {

constexpr char kRunning[] = "running";
constexpr int kLeaseMillis = 60 * 1000;
constexpr int kTtlMillis = 24 * 60 * 60 * 1000;

void expect_claimed(bool claimed) {
    if (!claimed) throw std::runtime_error("a new key was in Redis already");
}

}  // namespace

Work redis_keys(Client& client) {
    prepare_business(client.sql);
    return [&sql = client.sql, &redis = client.redis()] {
        std::string key = random_key();
        expect_claimed(redis.set_if_absent(key, kRunning, kLeaseMillis));
        sql.ask(start());
        expect(sql.ask(pay()), "1");
        sql.ask(commit());
        redis.set(key, response_body(), kTtlMillis);
    };
}

Work redis_keys_overlapped(Client& client) {
    prepare_business(client.sql);
    return [&sql = client.sql, &redis = client.redis()] {
        std::string key = random_key();
        redis.send_set_if_absent(key, kRunning, kLeaseMillis);
        sql.send({start()});
        expect_claimed(redis.receive_was_absent());
        (void)sql.receive();
        expect(sql.ask(pay()), "1");
        sql.ask(commit());
        redis.set(key, response_body(), kTtlMillis);
    };
}

}  // namespace idem::bench
