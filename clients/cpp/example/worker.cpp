// The worker of the conformance suite. The variables of WORKER_ are its options.
#include <signal.h>

#include <cstdlib>
#include <idempotency/pqxx.hpp>
#include <idempotency/worker.hpp>
#include <iostream>

namespace {

using idempotency::Answer;
using idempotency::Due;
using idempotency::Milliseconds;
using idempotency::Pqxx;
using nlohmann::json;
using Pool = idempotency::Pool<Pqxx>;
using Worker = idempotency::Worker<Pqxx>;

constexpr char kInsert[] = "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)";

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

template <typename Number>
void set(Number& option, const char* name) {
    const auto value = variable(name);
    if (!value.empty()) option = Number(std::stoul(value));
}

class Handler {
  public:
    explicit Handler(Pool& others) : others_(others) {}

    template <typename Effect>
    Answer operator()(const Due& due, const Effect& effect) const {
        const auto& order = due.request;
        if (order.contains("effect")) effect(order["effect"].get<std::string>());
        if (order.contains("gate")) {
            run("SELECT pg_advisory_xact_lock_shared($1::bigint)", {order["gate"].dump()});
        }
        if (order.value("lost", false)) {
            while (!due.wait_for_loss(std::chrono::minutes(1))) {
            }
            insert(due, "lost");
        }
        if (due.attempt < order.value("throw_until", 0)) throw std::runtime_error("thrown");
        if (due.attempt < order.value("nothing_until", 0)) {
            throw idempotency::NothingHappened("nothing happened");
        }
        if (!order.contains("status")) return idempotency::no_answer();
        return {order["status"], {}, order.value("body", "")};
    }

    // On another connection.
    void insert(const Due& due, const std::string& note) const {
        run(kInsert, {due.principal, due.key, note});
    }

  private:
    void run(const char* sql, const idempotency::Values& values) const {
        const auto loan = others_.lend();
        Pqxx::run_alone(**loan, sql, values);
    }

    Pool& others_;
};

Worker worker(Pool& pool, const Handler& handler, const idempotency::WorkerOptions& options) {
    if (variable("WORKER_MODE") == "leased") {
        return Worker::leased(pool, options, [&](Worker::Claim claim, const Due& due) {
            const auto effect = [&](const auto& note) { handler.insert(due, note); };
            return std::move(claim).finish(handler(due, effect));
        });
    }
    return Worker::transactional(pool, options, [&](Pqxx::Transaction& tx, const Due& due) {
        return handler(due, [&](const auto& note) {
            Pqxx::run(tx, kInsert, {due.principal, due.key, note});
        });
    });
}

}  // namespace

int main() try {
    signal(SIGPIPE, SIG_IGN);
    idempotency::WorkerOptions options;
    options.scope = variable("WORKER_SCOPE");
    options.channel = variable("WORKER_CHANNEL");
    set(options.size, "WORKER_SIZE");
    set(options.lease, "WORKER_LEASE_MS");
    set(options.poll, "WORKER_POLL_MS");
    set(options.handler_timeout, "WORKER_HANDLER_TIMEOUT_MS");

    idempotency::PoolOptions pool_options;
    pool_options.size = options.size + 1;
    pool_options.timeout = pool_options.patience = Milliseconds(2000);
    Pool pool("", pool_options), others("", pool_options);
    const Handler handler(others);
    auto working = worker(pool, handler, options);
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, nullptr);  // one that comes before the worker runs waits
    std::cout << "ready" << std::endl;
    working.run_until({SIGTERM});
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
}
