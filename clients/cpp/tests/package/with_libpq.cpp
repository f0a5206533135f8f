// A payment, and the same request again.
#include <idempotency/libpq.hpp>
#include <idempotency/transactionally.hpp>
#include <iostream>
using namespace idempotency;

int main() try {
    Pool<Libpq> pool("", {});
    Libpq::run_alone(**pool.lend(), "CREATE TABLE payment (amount integer)", {});
    Call call;
    call.key = "k";
    call.scope = "pay";
    call.principal = "me";
    const auto pay = [](Libpq::Transaction& tx, const Decision&) {
        Libpq::run(tx, "INSERT INTO payment VALUES ($1::integer)", {"5"});
        return Answer{201, {}, "paid"};
    };
    const auto first = transactionally(pool, call, {}, pay).second;
    const auto again = transactionally(pool, call, {}, pay).first;
    const auto paid = Libpq::run_alone(**pool.lend(), "SELECT sum(amount) FROM payment", {});
    std::cout << first->status << ' ' << again.outcome << ' ' << again.status_code.value_or(0)
              << ' ' << paid[0].value_or("") << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
