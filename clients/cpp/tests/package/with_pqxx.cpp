// The route that README.md and docs/recipes.md show.
#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>
using namespace idempotency;

int main() {
    Pool<Pqxx> pool("dbname=payments", {});
    const Idempotent<Pqxx> idempotent(pool);

    Options options;
    options.scope = "POST /payments";
    // Who asks, as the authentication in front of this service says.
    options.principal = [](const Request& head) { return value_of(head.headers, "X-Tenant"); };
    const Route payments =
        idempotent.transactional(options, [](Pqxx::Transaction& tx, const Exchange& exchange) {
            tx.exec_params("INSERT INTO payment (tenant, body) VALUES ($1, $2)", exchange.principal,
                           exchange.request.body);
            return Answer{201, {{"Content-Type", "application/json"}}, R"({"status":"paid"})"};
        });
    return payments.principal({"POST", "/payments", {{"X-Tenant", "me"}}, ""}) == "me" ? 0 : 1;
}
