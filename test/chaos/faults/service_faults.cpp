#include "faults/service_faults.hpp"

#include <signal.h>

#include <fstream>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr int kLooks = 20;  // for an open claim
constexpr Micros kGlance = 2 * kMillisecond;

// Claims that were open at the time of the fault, and have since been rolled back.
constexpr char kDiedWithService[] = "claims that died with their service";
constexpr char kDiedWithBackend[] = "claims that died with their backend";

// A process that is frozen while this object lives, or has been killed.
class Frozen {
  public:
    explicit Frozen(int pid) : pid_(pid) { ::kill(pid_, SIGSTOP); }
    ~Frozen() { ::kill(pid_, SIGCONT); }
    Frozen(const Frozen&) = delete;
    Frozen& operator=(const Frozen&) = delete;

  private:
    const int pid_;
};

}  // namespace

ServiceFaults::ServiceFaults(const Target& target, const std::string& name, std::uint64_t seed,
                             Micros pause)
    : Injector(target, Random(seed, 0x5e21ce), pause), name_(name) {
    fired_[kDiedWithService] = fired_[kDiedWithBackend] = 0;
    add("kill", 2, [this] { return strike(&ServiceFaults::kill); });
    add("terminate", 2, [this] { return strike(&ServiceFaults::terminate); });
    add("kill blindly", 1, [this] { return kill_blindly(); });
}

// Strikes while a claim is open. The frozen service sends nothing more, so an open claim stays open
// until the blow. But the last statement may still be on its way, so its transaction's fate is
// checked.
bool ServiceFaults::strike(void (ServiceFaults::*blow)(int, const Holders&)) {
    for (int look = 0; look < kLooks && !stop_; ++look, rest(kGlance)) {
        const Holders seen = holders(name_ + " %");
        if (seen.empty()) continue;
        const std::string session = random_.pick(seen).session;
        const int service = std::stoi(session.substr(name_.size()));
        if (!is_service(service)) continue;
        const Frozen frozen(service);
        const Holders claims = holders(session);
        if (claims.empty()) continue;
        (this->*blow)(service, claims);
        return true;
    }
    return false;
}

void ServiceFaults::kill(int service, const Holders& claims) {
    ::kill(service, SIGKILL);
    for (const Holder& claim : claims) fired_[kDiedWithService] += rolled_back(claim);
}

// As an administrator or a failover would. Returns when the backend is gone.
void ServiceFaults::terminate(int, const Holders& claims) {
    const Holder& victim = claims.front();
    query("SELECT pg_terminate_backend(" + std::to_string(victim.backend) + ", 10000)");
    fired_[kDiedWithBackend] += rolled_back(victim);
}

// At any point of the service, between two requests or in a COMMIT.
bool ServiceFaults::kill_blindly() {
    std::vector<int> services;
    for (const auto& row :
         query("SELECT DISTINCT substr(application_name, " + std::to_string(name_.size() + 2) +
               ")::int FROM pg_stat_activity WHERE application_name LIKE '" + name_ +
               " %' ORDER BY 1"))
        if (is_service(row[0].as<int>())) services.push_back(row[0].as<int>());
    return !services.empty() && ::kill(random_.pick(services), SIGKILL) == 0;
}

// A transaction without an id had not even written its effect.
bool ServiceFaults::rolled_back(const Holder& claim) {
    if (claim.xid.empty()) return true;
    for (;; rest(kMillisecond)) {
        const std::string status =
            query("SELECT pg_xact_status('" + claim.xid + "'::xid8)")[0][0].as<std::string>();
        if (status != "in progress") return status == "aborted";
    }
}

// A backend may outlive its client for a moment, and the client's process id may be reused by now.
// The kernel keeps 15 letters of a name.
bool ServiceFaults::is_service(int pid) const {
    std::string name;
    std::ifstream("/proc/" + std::to_string(pid) + "/comm") >> name;
    return name == name_.substr(0, 15);
}

}  // namespace idem::chaos
