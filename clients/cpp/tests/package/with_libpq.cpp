#include <idempotency/libpq.hpp>
#include <idempotency/transactionally.hpp>

int main() {
    idempotency::Pool<idempotency::Libpq> pool("", {});
    return pool.options().size > 0 && idempotency::parse_key("\"k\"") == "k" ? 0 : 1;
}
