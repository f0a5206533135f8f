#include "work.hpp"

#include <cinttypes>
#include <cstdio>
#include <random>
#include <stdexcept>

namespace idem::bench {
namespace {

// As long as a UUID, and as random: neighbours in time are none in the index.
std::string random_key() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    char key[37];
    std::snprintf(key, sizeof(key), "%016" PRIx64 "-%016" PRIx64 "-01", random(), random());
    return key;
}

}  // namespace

WorkFactory first_execution(const std::string& ttl) {
    return [ttl](Connection& connection) -> Work {
        connection.prepare("start", "BEGIN");
        connection.prepare(
            "claim", "SELECT outcome FROM idem_begin($1, scope => 'bench', ttl => '" + ttl + "')");
        connection.prepare("complete", "SELECT idem_complete($1, 200, $2::text, scope => 'bench')");
        connection.prepare("commit", "COMMIT");
        return [&connection, body = std::string(kBodyBytes, 'x')] {
            std::string key = random_key();
            if (connection.round_trip({{"start", {}}, {"claim", {key}}}) != "execute")
                throw std::runtime_error("a new key was not executed");
            connection.round_trip({{"complete", {key, body}}});
            connection.round_trip({{"commit", {}}});
        };
    };
}

}  // namespace idem::bench
