// idem_peers WORK CLIENTS SECONDS PREFIX: the work that pgbench can't do because it involves Redis,
// and the same work of ours by the same program, for comparison. Each client is a thread that
// repeats the work as fast as it is answered, and checks every answer. PREFIX.N gets a line for
// each time, as in pgbench's log. libpq's environment names the database, REDIS_ADDRESS the other
// server: the path of a Unix socket, or a TCP port of this machine.

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace idem::bench {
namespace {

constexpr int kLeaseMillis = 60 * 1000;
constexpr int kTtlMillis = 24 * 60 * 60 * 1000;
constexpr std::uint64_t kKnownRecords = 10000;
const std::string kBody(200, 'x');

void expect(const std::string& answer, const std::string& wanted) {
    if (answer != wanted)
        throw std::runtime_error("answered '" + answer + "' instead of '" + wanted + "'");
}

std::uint64_t random_number() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
}

// As pgbench's scripts make them, and bench.key_of() those of known records.
std::string key_of(std::uint64_t number) {
    return std::to_string(number) + "-5b1c-7d3e-8f00";
}

std::string random_key() {
    return key_of(1'000'000'000'000'000'000 + random_number() % 8'000'000'000'000'000'000);
}

std::string known_key() {
    std::uint64_t record = 1 + random_number() % kKnownRecords;
    return key_of(1'000'000'000'000'000'000 + record * 1103515245 % 2147483648 * 3800000000);
}

// ---- connections: requests sent together and answered together are one round trip ----

// A prepared statement, and its arguments as text.
struct Call {
    const char* statement;
    std::vector<std::string> arguments;
};

class Sql {
  public:
    Sql() : handle_(PQconnectdb(""), PQfinish) {
        require(PQstatus(handle_.get()) == CONNECTION_OK);
        prepare("start", "BEGIN");
        prepare("commit", "COMMIT");
        prepare("pay", "INSERT INTO bench.payment (account, amount) VALUES ($1, $2)");
        prepare("claim", "SELECT outcome FROM idem_begin($1, scope => 'bench')");
        prepare("complete", "SELECT idem_complete($1, 201, $2::text, scope => 'bench')");
        prepare("replay",
                "SELECT convert_from(body, 'UTF8'), status_code, outcome"
                " FROM idem_begin($1, scope => 'bench')");
        prepare("execute",
                "SELECT outcome FROM idem_execute($1, 'bench.pay(jsonb)', jsonb_build_object("
                "'account', $2::bigint, 'amount', $3::bigint), scope => 'bench')");
        require(PQenterPipelineMode(handle_.get()) == 1);
    }

    void send(std::initializer_list<Call> calls) {
        for (const Call& call : calls) {
            std::vector<const char*> values;
            for (const std::string& argument : call.arguments) values.push_back(argument.c_str());
            require(PQsendQueryPrepared(handle_.get(), call.statement,
                                        static_cast<int>(values.size()), values.data(), nullptr,
                                        nullptr, 0) == 1);
        }
        require(PQpipelineSync(handle_.get()) == 1);
    }

    // The first value of each answer, or the number of changed rows.
    std::vector<std::string> receive() {
        std::vector<std::string> answers;
        for (;;) {
            std::unique_ptr<PGresult, decltype(&PQclear)> result(PQgetResult(handle_.get()),
                                                                 PQclear);
            if (result == nullptr) continue;  // the end of an answer
            ExecStatusType status = PQresultStatus(result.get());
            if (status == PGRES_PIPELINE_SYNC) return answers;
            require(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
            answers.emplace_back(PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0)
                                                             : PQcmdTuples(result.get()));
        }
    }

    std::vector<std::string> round_trip(std::initializer_list<Call> calls) {
        send(calls);
        return receive();
    }

  private:
    void prepare(const char* name, const char* sql) {
        std::unique_ptr<PGresult, decltype(&PQclear)> result(
            PQprepare(handle_.get(), name, sql, 0, nullptr), PQclear);
        require(PQresultStatus(result.get()) == PGRES_COMMAND_OK);
    }

    void require(bool ok) const {
        if (!ok) throw std::runtime_error(PQerrorMessage(handle_.get()));
    }

    std::unique_ptr<PGconn, decltype(&PQfinish)> handle_;
};

class Redis {
  public:
    Redis() : handle_(connect(std::getenv("REDIS_ADDRESS")), redisFree) {
        require(handle_ != nullptr && handle_->err == 0);
    }

    void append_set(const std::string& key, const std::string& value, int lifetime_ms,
                    bool if_absent) {
        require(redisAppendCommand(
                    handle_.get(), if_absent ? "SET %b %b PX %d NX" : "SET %b %b PX %d", key.data(),
                    key.size(), value.data(), value.size(), lifetime_ms) == REDIS_OK);
    }
    void append_get(const std::string& key) {
        require(redisAppendCommand(handle_.get(), "GET %b", key.data(), key.size()) == REDIS_OK);
    }

    void flush() {
        for (int done = 0; done == 0;) require(redisBufferWrite(handle_.get(), &done) == REDIS_OK);
    }

    // '' for nil, as SET NX answers if the key was already there.
    std::string receive() {
        void* raw = nullptr;
        require(redisGetReply(handle_.get(), &raw) == REDIS_OK);
        std::unique_ptr<void, decltype(&freeReplyObject)> owned(raw, freeReplyObject);
        const auto* reply = static_cast<const redisReply*>(raw);
        std::string text = reply->str == nullptr ? "" : std::string(reply->str, reply->len);
        if (reply->type == REDIS_REPLY_ERROR) throw std::runtime_error("Redis: " + text);
        return text;
    }

    std::string set(const std::string& key, const std::string& value, int lifetime_ms,
                    bool if_absent) {
        append_set(key, value, lifetime_ms, if_absent);
        flush();
        return receive();
    }
    std::string get(const std::string& key) {
        append_get(key);
        flush();
        return receive();
    }

  private:
    // hiredis itself turns Nagle's algorithm off.
    static redisContext* connect(const std::string& address) {
        return address.front() == '/' ? redisConnectUnix(address.c_str())
                                      : redisConnect("127.0.0.1", std::stoi(address));
    }

    void require(bool ok) const {
        if (!ok)
            throw std::runtime_error(handle_ == nullptr ? "Redis: no memory" : handle_->errstr);
    }

    std::unique_ptr<redisContext, decltype(&redisFree)> handle_;
};

// ---- the works; [a] [b + c] are two round trips ----

Call start() {
    return {"start", {}};
}
Call commit() {
    return {"commit", {}};
}
std::vector<std::string> payment() {
    return {std::to_string(random_number() % 1000000), std::to_string(random_number() % 10000)};
}
void pay(Sql& sql) {
    expect(sql.round_trip({{"pay", payment()}}).front(), "1");
}

// [BEGIN] [payment] [COMMIT]
void bare(Sql& sql, Redis&) {
    sql.round_trip({start()});
    pay(sql);
    sql.round_trip({commit()});
}

// [SET NX] [BEGIN] [payment] [COMMIT] [SET response]. Not safe: after a crash between COMMIT and
// the second SET, Redis does not know of the payment.
void redis_keys(Sql& sql, Redis& redis) {
    std::string key = random_key();
    expect(redis.set(key, "running", kLeaseMillis, true), "OK");
    bare(sql, redis);
    expect(redis.set(key, kBody, kTtlMillis, false), "OK");
}

// [SET NX and, at the same time, BEGIN] [payment] [COMMIT] [SET response]
void redis_keys_overlapped(Sql& sql, Redis& redis) {
    std::string key = random_key();
    redis.append_set(key, "running", kLeaseMillis, true);
    redis.flush();
    sql.send({start()});
    expect(redis.receive(), "OK");
    sql.receive();
    pay(sql);
    sql.round_trip({commit()});
    expect(redis.set(key, kBody, kTtlMillis, false), "OK");
}

// [BEGIN] [idem_begin] [payment] [idem_complete] [COMMIT]
void ours(Sql& sql, Redis&) {
    std::string key = random_key();
    sql.round_trip({start()});
    expect(sql.round_trip({{"claim", {key}}}).front(), "execute");
    pay(sql);
    expect(sql.round_trip({{"complete", {key, kBody}}}).front(), "t");
    sql.round_trip({commit()});
}

// [BEGIN + idem_begin] [payment] [idem_complete + COMMIT]
void ours_pipelined(Sql& sql, Redis&) {
    std::string key = random_key();
    expect(sql.round_trip({start(), {"claim", {key}}}).back(), "execute");
    pay(sql);
    expect(sql.round_trip({{"complete", {key, kBody}}, commit()}).front(), "t");
}

// [idem_execute]
void ours_execute(Sql& sql, Redis&) {
    std::vector<std::string> arguments = payment();
    arguments.insert(arguments.begin(), random_key());
    expect(sql.round_trip({{"execute", arguments}}).front(), "execute");
}

// [SET NX] [GET]
void replay_redis(Sql&, Redis& redis) {
    std::string key = known_key();
    expect(redis.set(key, "running", kLeaseMillis, true), "");
    expect(redis.get(key), kBody);
}

// [SET NX + GET]
void replay_redis_pipelined(Sql&, Redis& redis) {
    std::string key = known_key();
    redis.append_set(key, "running", kLeaseMillis, true);
    redis.append_get(key);
    redis.flush();
    expect(redis.receive(), "");
    expect(redis.receive(), kBody);
}

// [idem_begin]
void replay_ours(Sql& sql, Redis&) {
    expect(sql.round_trip({{"replay", {known_key()}}}).front(), kBody);
}

using Work = void (*)(Sql&, Redis&);
const std::map<std::string, Work> kWorks{
    {"bare", bare},
    {"redis", redis_keys},
    {"redis_overlapped", redis_keys_overlapped},
    {"ours", ours},
    {"ours_pipelined", ours_pipelined},
    {"ours_execute", ours_execute},
    {"replay_redis", replay_redis},
    {"replay_redis_pipelined", replay_redis_pipelined},
    {"replay_ours", replay_ours},
};

void live(int number, Work work, std::chrono::seconds span, const std::string& prefix) {
    using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::steady_clock;
    Sql sql;
    Redis redis;
    std::ofstream log(prefix + "." + std::to_string(number));
    steady_clock::time_point end = steady_clock::now() + span;
    for (std::uint64_t count = 1; steady_clock::now() < end; count++) {
        steady_clock::time_point begun = steady_clock::now();
        work(sql, redis);
        auto took = duration_cast<microseconds>(steady_clock::now() - begun).count();
        auto now = duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch())
                       .count();
        log << number << ' ' << count << ' ' << took << " 0 " << now / 1000000 << ' '
            << now % 1000000 << '\n';
    }
    if (!log.flush()) throw std::runtime_error("cannot write " + prefix);
}

void run(int argc, char** argv) {
    if (argc != 5 || kWorks.count(argv[1]) == 0 || std::getenv("REDIS_ADDRESS") == nullptr)
        throw std::invalid_argument(
            "usage: REDIS_ADDRESS=... idem_peers WORK CLIENTS SECONDS PREFIX");
    std::vector<std::future<void>> clients;
    for (int i = 0; i < std::stoi(argv[2]); i++)
        clients.push_back(std::async(std::launch::async, live, i, kWorks.at(argv[1]),
                                     std::chrono::seconds(std::stoi(argv[3])), argv[4]));
    for (std::future<void>& client : clients) client.get();
}

}  // namespace
}  // namespace idem::bench

int main(int argc, char** argv) try {
    idem::bench::run(argc, argv);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "idem_peers: " << error.what() << '\n';
    return 1;
}
