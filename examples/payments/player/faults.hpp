// Which fault meets which line, and the hand that terminates connections.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <pqxx/pqxx>
#include <string>

namespace payments {

enum class Fault { None, Terminated, Crashed, Unheard };

// How far the transaction has come when a fault before COMMIT strikes.
enum class Moment { Begun, Charged, Booked, Completed };

struct FaultPlan {
    Fault fault;
    Moment moment;
};

// The same for the same seed and line, so that a run can be repeated.
FaultPlan plan_fault(std::uint64_t seed, int line, int percent);

// How long the payment of this line takes, in microseconds: time for others to run into it.
int working_time(std::uint64_t seed, int line);

// Terminates backends over a connection of its own, as an administrator or a failover would.
class Terminator {
  public:
    explicit Terminator(const std::string& database) : connection_(database) {}
    // Returns when the backend is gone, at once if there is none.
    void terminate(pid_t backend);

  private:
    pqxx::connection connection_;
};

}  // namespace payments
