// The server of clients/conformance/README.md, on cpp-httplib or Boost.Beast, as the variable
// SERVER says.
#include <openssl/evp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <idempotency/beast.hpp>
#include <idempotency/httplib.hpp>
#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using idempotency::Answer;
using idempotency::Ended;
using idempotency::Exchange;
using idempotency::Milliseconds;
using idempotency::Options;
using idempotency::Pqxx;
using idempotency::Request;
using nlohmann::json;
using Pool = idempotency::Pool<Pqxx>;
using Claim = idempotency::LeasedClaim<Pqxx>;

constexpr std::size_t kThreads = 32;

idempotency::PoolOptions pool_options() {
    idempotency::PoolOptions options;
    options.size = kThreads;
    options.timeout = options.patience = Milliseconds(2000);
    return options;
}

// In a transaction of its own.
void run(Pool& pool, const char* sql, const idempotency::Values& values) {
    const auto loan = pool.lend();
    Pqxx::Transaction tx(**loan);
    Pqxx::run(tx, sql, values);
    tx.commit();
}

std::optional<std::string> bearer(const Request& head) {
    const auto field = idempotency::value_of(head.headers, "Authorization");
    const auto blank = field.find(' ');
    if (blank == field.npos || !idempotency::same_name(field.substr(0, blank), "Bearer")) {
        return std::nullopt;
    }
    const auto token = field.substr(std::min(field.find_first_not_of(' ', blank), field.size()));
    return token.empty() ? std::nullopt : std::make_optional(token);
}

std::string from_base64(const std::string& text) {
    std::string bytes(text.size() / 4 * 3, '\0');
    if (text.empty()) return bytes;
    EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                    reinterpret_cast<const unsigned char*>(text.data()),
                    static_cast<int>(text.size()));
    const auto padding = static_cast<std::size_t>(std::count(text.end() - 2, text.end(), '='));
    bytes.resize(bytes.size() - padding);
    return bytes;
}

// Where the kinds of route differ.
struct Ways {
    std::function<void(const std::string& note)> effect;
    std::function<void(const std::string& way)> commit;
    std::function<void(const json& way)> hide_error;
    std::function<void()> fail_to_serialize;
    std::function<void()> hang;
    std::function<void()> never;
    std::function<void(long long milliseconds)> idle;
    // With an error, a reference and the answer.
    std::function<void(const json& what, const Answer& answer)> unknown;
};

class Handler {
  public:
    explicit Handler(Pool& others) : others_(others) {}

    Answer operator()(const Exchange& exchange, const Ways& ways) {
        const auto& request = exchange.request;
        const auto order = json::parse(request.body, nullptr, /* allow_exceptions */ false);
        if (!order.is_object() || !idempotency::is_json(idempotency::media_type(request.headers))) {
            ways.effect("raw");
            auto type = idempotency::value_of(request.headers, "Content-Type");
            if (type.empty()) type = "application/octet-stream";
            return {200, {{"Content-Type", type}}, request.body};
        }
        if (order.contains("gate")) wait_at_gate(order["gate"].get<long long>());
        if (order.contains("effect")) ways.effect(order["effect"].get<std::string>());
        if (order.contains("unknown")) ways.unknown(order["unknown"], answer_of(order));
        if (order.contains("commit")) ways.commit(order["commit"].get<std::string>());
        if (order.contains("hide_error")) ways.hide_error(order["hide_error"]);
        if (is_to_fail(exchange.key, order.value("serialization_failures", 0))) {
            ways.fail_to_serialize();
        }
        if (order.value("hang", false)) {
            ways.hang();
            insert(exchange, "lost");
        }
        if (order.value("nothing_happened", false)) {
            throw idempotency::NothingHappened("nothing happened");
        }
        if (order.value("never", false)) ways.never();
        if (order.contains("idle")) ways.idle(order["idle"].get<long long>());
        if (order.contains("stranger")) throw std::runtime_error("Connection closed");
        if (order.contains("raise")) throw idempotency::Refusal({order["raise"], {}, "raised"});
        if (order.value("throw", false)) throw std::runtime_error("thrown by the handler");
        if (order.value("exit", false)) _exit(3);
        return answer_of(order);
    }

    static Answer answer_of(const json& order) {
        Answer answer{order.value("status", 201), {}, ""};
        const auto part = from_base64(order.value("body", ""));
        for (int i = order.value("repeat", 1); i > 0; --i) answer.body += part;
        for (const auto& field : order.value("headers", json::array())) {
            answer.headers.emplace_back(field.at(0), field.at(1));
        }
        return answer;
    }

    void insert(const Exchange& exchange, const std::string& note) {
        run(others_, kInsert, {exchange.principal, exchange.key, note});
    }

    static constexpr char kInsert[] =
        "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)";
    static constexpr char kFailToSerialize[] = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$";

  private:
    void wait_at_gate(long long gate) {
        const auto number = std::to_string(gate);
        run(others_, "SELECT pg_advisory_xact_lock_shared($1::bigint)", {number});
    }

    bool is_to_fail(const std::string& key, int times) {
        if (times == 0) return false;
        const std::lock_guard<std::mutex> lock(mutex_);
        return ++runs_[key] <= times;
    }

    Pool& others_;
    std::mutex mutex_;
    std::map<std::string, int> runs_;
};

// An HTTP library.
class Front {
  public:
    virtual ~Front() = default;
    virtual void post(const std::string& path, idempotency::Route route) = 0;
    virtual void get(const std::string& path, const std::string& type, const std::string& body) = 0;
    virtual void bind(int port) = 0;
    virtual void listen() = 0;
};

class OnHttplib final : public Front {
  public:
    OnHttplib() {
        // A connection that is kept alive keeps its thread.
        server_.new_task_queue = [] { return new httplib::ThreadPool(8 * kThreads); };
        server_.set_keep_alive_max_count(1000);
        server_.set_tcp_nodelay(true);
    }
    void post(const std::string& path, idempotency::Route route) override {
        server_.Post(path, idempotency::protect(std::move(route)));
    }
    void get(const std::string& path, const std::string& type, const std::string& body) override {
        server_.Get(path, [type, body](const auto&, httplib::Response& response) {
            response.set_content(body, type.c_str());
        });
    }
    void bind(int port) override { server_.bind_to_port("127.0.0.1", port); }
    void listen() override { server_.listen_after_bind(); }

  private:
    idempotency::HttplibServer server_;
};

class OnBeast final : public Front {
  public:
    void post(const std::string& path, idempotency::Route route) override {
        server_.route("POST", path, std::move(route));
    }
    void get(const std::string& path, const std::string& type, const std::string& body) override {
        server_.route("GET", path, {nullptr, 0, [type, body](const auto&, const auto&) {
                                        return Answer{200, {{"Content-Type", type}}, body};
                                    }});
    }
    void bind(int port) override { server_.bind("127.0.0.1", port); }
    void listen() override { server_.listen(); }

  private:
    idempotency::BeastServer server_{8 * kThreads};
};

std::unique_ptr<Front> front() {
    const char* name = std::getenv("SERVER");
    if (name != nullptr && name == std::string("beast")) return std::make_unique<OnBeast>();
    return std::make_unique<OnHttplib>();
}

class Server {
  public:
    Server()
        : pool_("", pool_options()),
          others_("", others_options()),
          handler_(others_),
          idempotent_(pool_) {
        add_routes();
    }

    void run() {
        server_->bind(std::atoi(std::getenv("PORT")));
        std::cout << "ready" << std::endl;
        server_->listen();
    }

  private:
    void add_routes() {
        Options options;
        add("/transactional", options);
        add("/streamed", options);
        add_leased("/leased");
        add_leased("/uncertain");
        add_leased("/judged_leased", judged);
        options.verdict = judged;
        add("/judged", options);
        options = {};
        options.handler_timeout = Milliseconds(1000);
        add("/impatient", options);
        options = {};
        options.missing_key = idempotency::MissingKey::Generate;
        add("/generate", options);
        options.missing_key = idempotency::MissingKey::Pass;
        add("/pass", options);
        options.missing_key = idempotency::MissingKey::Derive;
        options.window = Milliseconds(2000);
        add("/derive", options);
        add_configured();
        options = {};
        options.max_answer_bytes = 1000;
        options.omit_large_answers = true;
        add("/omit", options);
        options.omit_large_answers = false;
        options.max_request_bytes = 1000;
        add("/small", options);
        options = {};
        options.wait = Milliseconds(4000);
        add("/patient", options);
        add_unprotected();
        if (bench_) add_bare();
        server_->get("/ways", "application/json", ways().dump());
        server_->get("/health", "text/plain", "well\n");
    }

    static idempotency::PoolOptions others_options() {
        auto options = pool_options();
        options.size = 2 * kThreads;
        return options;
    }

    idempotency::Hook hook(const char* name) {
        return [this, name](const idempotency::Event& event) {
            const auto loan = others_.lend();
            const auto limit = loan->limit(Milliseconds(2000));
            Pqxx::run_alone(
                **loan,
                "INSERT INTO hook (name, scope, key, attempt, outcome)"
                " VALUES ($1, $2, $3, $4::integer, $5)",
                {name, event.scope, event.key, std::to_string(event.attempt), event.outcome});
        };
    }

    Options complete(Options options, const std::string& path) {
        options.scope = "POST " + path;
        options.principal = bearer;
        if (bench_) return options;
        options.on_execute = hook("execute");
        options.on_replay = hook("replay");
        options.on_refusal = hook("refusal");
        options.on_lease_lost = hook("lease_lost");
        return options;
    }

    using Tx = Pqxx::Transaction;
    using Base = pqxx::transaction_base;
    using Acts = std::map<std::string, std::function<void(Tx&)>>;

    // Every call by which a handler can run a statement.
    static const Acts& failures() {
        static const Acts known = {
            {"exec", [](Tx& tx) { tx.exec("SELECT 1/0"); }},
            {"exec0", [](Tx& tx) { tx.exec0("SELECT 1/0"); }},
            {"exec1", [](Tx& tx) { tx.exec1("SELECT 1/0"); }},
            {"exec_n", [](Tx& tx) { tx.exec_n(1, "SELECT 1/0"); }},
            {"exec_params", [](Tx& tx) { tx.exec_params("SELECT 1/$1::integer", 0); }},
            {"exec_params1", [](Tx& tx) { tx.exec_params1("SELECT 1/$1::integer", 0); }},
            {"exec_params_base", [](Base& tx) { tx.exec_params("SELECT 1/$1::integer", 0); }},
            {"exec_base", [](Base& tx) { tx.exec("SELECT 1/0"); }},
            {"abort", [](Tx& tx) { tx.abort(); }},
            {"abort_base", [](Base& tx) { tx.abort(); }},
        };
        return known;
    }

    static const Acts& commits() {
        static const Acts known = {
            {"sql", [](Tx& tx) { Pqxx::run(tx, "COMMIT", {}); }},
            {"exec", [](Tx& tx) { tx.exec("COMMIT"); }},
            {"driver", [](Tx& tx) { tx.commit(); }},
            {"driver_base", [](Base& tx) { tx.commit(); }},
        };
        return known;
    }

    static json ways() {
        json names = {{"hide_error", json::array()},
                      {"commit", json::array()},
                      {"waits", {{"execute", 3}, {"replay", 1}, {"leased", 3}}}};
        for (const auto& way : failures()) names["hide_error"].push_back(way.first);
        for (const auto& way : commits()) names["commit"].push_back(way.first);
        return names;
    }

    static void hide_error(Tx& tx, const json& way) try {
        failures().at(way.is_string() ? way.get<std::string>() : "exec_params")(tx);
    } catch (const std::exception&) {  // as careless handlers do
    }

    static void idle(Tx& tx, long long milliseconds) {
        tx.exec("SET LOCAL idle_in_transaction_session_timeout = " + std::to_string(milliseconds));
        std::this_thread::sleep_for(Milliseconds(milliseconds + 1000));
    }

    static std::optional<idempotency::Verdict> judged(const Answer& answer) {
        static const std::map<std::string, idempotency::Verdict> known = {
            {"keep", idempotency::Verdict::Keep},
            {"free", idempotency::Verdict::Free},
            {"unknown", idempotency::Verdict::Unknown},
        };
        const auto said = known.find(idempotency::value_of(answer.headers, "X-Verdict"));
        return said == known.end() ? std::nullopt : std::make_optional(said->second);
    }

    Answer in_transaction(Pqxx::Transaction& tx, const Exchange& exchange) {
        return handler_(
            exchange,
            {[&](const auto& note) {
                 Pqxx::run(tx, Handler::kInsert, {exchange.principal, exchange.key, note});
             },
             [&](const auto& way) { commits().at(way)(tx); },
             [&](const json& way) { hide_error(tx, way); },
             [&] { Pqxx::run(tx, Handler::kFailToSerialize, {}); }, [] {},
             [&] { Pqxx::run(tx, "SELECT pg_sleep(1e6)", {}); },
             [&](long long milliseconds) { idle(tx, milliseconds); },
             [](const auto&, const auto&) {}});
    }

    Answer without_transaction(const Exchange& exchange) {
        return handler_(exchange, {[&](const auto& note) { handler_.insert(exchange, note); },
                                   [](const auto&) {}, [](const json&) {},
                                   [&] { ::run(others_, Handler::kFailToSerialize, {}); }, [] {},
                                   [] {}, [](long long) {}, [](const auto&, const auto&) {}});
    }

    Ended leased(Claim claim, const Exchange& exchange) {
        const auto effect = [&](const std::string& note) {
            if (claim.recovery_point() == "effect") return;
            claim.step("effect", [&](Pqxx::Transaction& tx) {
                Pqxx::run(tx, Handler::kInsert, {exchange.principal, exchange.key, note});
                return json();
            });
        };
        const auto hang = [&] {
            while (!claim.wait_for_loss(std::chrono::minutes(1))) {
            }
        };
        const auto fail = [&] { ::run(others_, Handler::kFailToSerialize, {}); };
        std::optional<Ended> ended;
        const auto unknown = [&](const json& what, const Answer& answer) {
            const auto error = what.at(0).get<std::string>();
            const auto reference =
                what.at(1).is_null() ? std::nullopt : std::optional<std::string>(what.at(1));
            ended.emplace(std::move(claim).unknown(error, reference, answer));
        };
        auto answer = handler_(exchange, {effect, [](const auto&) {}, [](const json&) {}, fail,
                                          hang, hang, [](long long) {}, unknown});
        return ended ? *ended : std::move(claim).finish(std::move(answer));
    }

    void add(const std::string& path, const Options& options) {
        const auto work = [this](auto& tx, const auto& exchange) {
            return in_transaction(tx, exchange);
        };
        server_->post(path, idempotent_.transactional(complete(options, path), work));
    }

    void add_leased(const std::string& path, decltype(Options::verdict) verdict = {}) {
        Options options;
        options.verdict = std::move(verdict);
        options.lease = Milliseconds(2000);
        const auto work = [this](Claim claim, const auto& exchange) {
            return leased(std::move(claim), exchange);
        };
        server_->post(path, idempotent_.leased(complete(options, path), work));
    }

    void add_configured() {
        Options options;
        options.statuses = {{"in_progress", 425}, {"mismatch", 400}, {"unavailable", 500}};
        options.key_header = "X-Request-Key";
        options.replay_header = "X-Replay";
        options.echo_key = true;
        options.exclude = {"ts"};
        options.keep = [](int) { return true; };
        options.ttl = Milliseconds(1000);
        add("/configured", options);
    }

    void add_unprotected() {
        Options options;
        options.unprotected_without_database = true;
        const auto work = [this](Pqxx::Transaction* tx, const auto& exchange) {
            return tx ? in_transaction(*tx, exchange) : without_transaction(exchange);
        };
        options = complete(options, "/unprotected");
        server_->post("/unprotected", idempotent_.plain(options, work));
    }

    // The work of /transactional without the client.
    void add_bare() {
        const auto work = [this](const Request& request, const auto&) {
            const auto loan = pool_.lend();
            pqxx::work tx(**loan);
            tx.exec_params("INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)", "bench",
                           "", json::parse(request.body).at("effect").get<std::string>());
            tx.commit();
            return Answer{201, {}, ""};
        };
        server_->post("/bare", {nullptr, 1 << 20, work});
    }

    // For bench/clients: without the suite's hooks, and with the route /bare.
    const bool bench_ = std::getenv("BENCH") != nullptr;
    const std::unique_ptr<Front> server_ = front();
    Pool pool_, others_;
    Handler handler_;
    const idempotency::Idempotent<Pqxx> idempotent_;
};

}  // namespace

int main() try {
    // A handler may never return.
    signal(SIGTERM, [](int) { _exit(0); });
    signal(SIGPIPE, SIG_IGN);
    Server server;
    server.run();
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
}
