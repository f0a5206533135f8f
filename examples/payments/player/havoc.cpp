#include "havoc.hpp"

#include <algorithm>
#include <thread>

#include "faults.hpp"

namespace payments {
namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 2ms;  // between two looks for an open claim

// Transactions that hold the lock of a key and wait for the service's next statement. The lock goes
// when the record is written, so these are before the end of idem_complete. The number of the
// transaction comes with its epoch, as pg_xact_status wants it. The service puts its process id
// into the name of its connections.
constexpr char kOpenClaims[] =
    "SELECT a.pid, ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 32 << 32)"
    "               + a.backend_xid::text::bigint)::text AS xid"
    "  FROM idempotency.in_flight f JOIN pg_stat_activity a USING (pid)"
    " WHERE f.kind = 'transactional' AND a.state = 'idle in transaction'"
    "   AND a.application_name = 'payments_service ' || $1::int";

}  // namespace

Havoc::Havoc(const Options& options, Services& services, Blows& blows)
    : options_(options), services_(services), blows_(blows), connection_(options.database) {
    plan_next();
}

void Havoc::plan_next() {
    ++blow_;
    const auto mean = static_cast<std::uint64_t>(options_.blow_every);
    const auto pause = mean == 0 ? 0 : draw(options_.seed, blow_, 5) % (2 * mean);
    next_ = Clock::now() + std::chrono::milliseconds(pause);
}

// Every fifth blow falls wherever the service is, between two requests or in a COMMIT.
bool Havoc::blind() const {
    return blow_ % 5 == 0;
}

void Havoc::tend() {
    if (options_.blow_every == 0 || Clock::now() < next_) return;
    Program& service = services_.service(draw(options_.seed, blow_, 6) % Services::kCount);
    if (blind()) {
        kill(service, {});
        return plan_next();
    }
    next_ = Clock::now() + kGlance;
    if (!open_claims(service).empty()) strike(service);
}

// Frozen, the service sends nothing more: what is open now stays open until the blow. The last
// statement may still be on its way, though, hence the look at what became of the transaction.
void Havoc::strike(Program& service) {
    service.freeze();
    const auto claims = open_claims(service);
    if (claims.empty()) return service.thaw();
    if (draw(options_.seed, blow_, 7) % 2 == 0) {
        kill(service, claims);
    } else {
        terminate(service, claims);
    }
    plan_next();
}

void Havoc::kill(Program& service, const std::vector<OpenClaim>& claims) {
    service.kill();
    ++blows_.services_killed;
    service.start();
    for (const auto& claim : claims) blows_.died_with_service += rolled_back(claim);
}

// As an administrator or a failover would. Returns when the backend is gone.
void Havoc::terminate(Program& service, const std::vector<OpenClaim>& claims) {
    const OpenClaim& victim = claims.front();
    {
        pqxx::nontransaction tx(connection_);
        tx.exec_params("SELECT pg_terminate_backend($1, 10000)", victim.backend);
    }
    service.thaw();
    ++blows_.backends_terminated;
    blows_.died_with_backend += rolled_back(victim);
}

std::vector<Havoc::OpenClaim> Havoc::open_claims(const Program& service) {
    pqxx::nontransaction tx(connection_);
    std::vector<OpenClaim> claims;
    for (const auto& row : tx.exec_params(kOpenClaims, service.pid())) {
        claims.push_back({row[0].as<int>(), row[1].as<std::string>("")});
    }
    return claims;
}

// Without a number of its own the transaction had not even written its charge.
bool Havoc::rolled_back(const OpenClaim& claim) {
    if (claim.xid.empty()) return true;
    for (;;) {
        pqxx::nontransaction tx(connection_);
        const auto status = tx.exec_params("SELECT pg_xact_status($1::text::xid8)", claim.xid);
        if (status[0][0].as<std::string>() != "in progress") {
            return status[0][0].as<std::string>() == "aborted";
        }
        std::this_thread::sleep_for(1ms);
    }
}

}  // namespace payments
