// Faults for the processes of an external service: they are killed while a claim of theirs is open,
// and their connections are terminated. The program that started them restarts them.
#pragma once

#include "faults/injector.hpp"

namespace idem::chaos {

class ServiceFaults : public Injector {
  public:
    // The service's connections are named after it: "NAME PID". `pause` is the mean time between
    // two faults.
    ServiceFaults(const Target& target, const std::string& name, std::uint64_t seed, Micros pause);
    ~ServiceFaults() override { stop(); }

  private:
    using Holders = std::vector<Holder>;

    bool strike(void (ServiceFaults::*blow)(int service, const Holders& claims));
    void kill(int service, const Holders& claims);
    void terminate(int service, const Holders& claims);
    bool kill_blindly();
    bool rolled_back(const Holder& claim);
    bool is_service(int pid) const;

    const std::string name_;
};

}  // namespace idem::chaos
