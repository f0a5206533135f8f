// The route of README.md by each of the servers: a payment, and the same request again.
#include <idempotency/beast.hpp>
#include <idempotency/httplib.hpp>
#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>
#include <iostream>
#include <thread>
using namespace idempotency;

static bool answers(httplib::Client& client, const std::string& key, const std::string& replayed) {
    const httplib::Headers fields{{"X-Tenant", "me"}, {"Idempotency-Key", key}};
    const auto answer = client.Post("/payments", fields, "{}", "application/json");
    return answer && answer->status == 201 &&
           answer->get_header_value("Idempotent-Replayed") == replayed;
}

// listen: of the server that has that port.
template <class Server, class Listen>
bool pays_once(Server& server, int port, const std::string& key, Listen listen) {
    std::thread running(listen);
    httplib::Client client("127.0.0.1", port);
    const bool well = answers(client, key, "") && answers(client, key, "true");
    server.stop();
    running.join();
    return well;
}

int main() try {
    Pool<Pqxx> pool("", {});
    pqxx::connection connection;
    pqxx::nontransaction sql(connection);
    sql.exec("CREATE TABLE request (tenant text, body text)");
    const Idempotent<Pqxx> idempotent(pool);

    Options options;
    options.scope = "POST /payments";
    // Who asks, as the authentication in front of this service says.
    options.principal = [](const Request& head) { return value_of(head.headers, "X-Tenant"); };
    const Route payments =
        idempotent.transactional(options, [](Pqxx::Transaction& tx, const Exchange& exchange) {
            tx.exec_params("INSERT INTO request VALUES ($1, $2)", exchange.principal,
                           exchange.request.body);
            return Answer{201, {{"Content-Type", "application/json"}}, R"({"status":"paid"})"};
        });

    HttplibServer httplib;
    httplib.Post("/payments", protect(payments));
    BeastServer beast;
    beast.route("POST", "/payments", payments);
    const int ports[] = {httplib.bind_to_any_port("127.0.0.1"), beast.bind("127.0.0.1", 0)};
    const bool well =
        pays_once(httplib, ports[0], "httplib", [&] { httplib.listen_after_bind(); }) &&
        pays_once(beast, ports[1], "beast", [&] { beast.listen(); });
    return well && sql.exec("SELECT tenant FROM request").size() == 2 ? 0 : 1;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
