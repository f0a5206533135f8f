// Strikes at the service while it works: kills its processes, terminates its connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <pqxx/pqxx>
#include <string>
#include <vector>

#include "board.hpp"
#include "options.hpp"
#include "services.hpp"

namespace payments {

class Havoc {
  public:
    Havoc(const Options& options, Services& services, Blows& blows);
    // One round: strikes if it is time and, but for some blind blows, if a claim is open.
    void tend();

  private:
    using Clock = std::chrono::steady_clock;
    // A transaction between idem_begin and idem_complete. No `xid`: it has written nothing yet.
    struct OpenClaim {
        int backend;
        std::string xid;
    };

    void plan_next();
    bool blind() const;
    std::vector<OpenClaim> open_claims(const Program& service);
    void strike(Program& service);
    void kill(Program& service, const std::vector<OpenClaim>& claims);
    void terminate(Program& service, const std::vector<OpenClaim>& claims);
    bool rolled_back(const OpenClaim& claim);

    const Options& options_;
    Services& services_;
    Blows& blows_;
    pqxx::connection connection_;
    int blow_ = 0;  // number of the next one
    Clock::time_point next_;
};

}  // namespace payments
