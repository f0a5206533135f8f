// The programs under test: two processes of the service over one database, and the gateway.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "options.hpp"
#include "program.hpp"

namespace payments {

class Services {
  public:
    static constexpr std::size_t kCount = 2;

    // Starts all of them and returns when they listen.
    explicit Services(const Options& options);
    Program& service(std::size_t i) { return services_[i]; }
    // Without a path.
    std::vector<std::string> urls() const;
    std::string gateway_url() const;
    // Throws if one has ended that nobody has killed.
    void check_alive();
    // Throws if one does not end cleanly.
    void stop();

  private:
    std::array<int, kCount> ports_;
    int gateway_port_;
    Program gateway_;
    std::array<Program, kCount> services_;
};

}  // namespace payments
