#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>

int main() {
    idempotency::Pool<idempotency::Pqxx> pool("", {});
    const idempotency::Idempotent<idempotency::Pqxx> idempotent(pool);
    idempotency::Options options;
    options.scope = "POST /payments";
    options.principal = [](const idempotency::Request&) { return std::string("me"); };
    const auto route = idempotent.transactional(options, [](pqxx::work&, const auto&) {
        return idempotency::Answer{201, {}, "paid"};
    });
    const auto head = idempotency::Request{"POST", "/payments", {}, ""};
    return route.principal(head) == "me" ? 0 : 1;
}
