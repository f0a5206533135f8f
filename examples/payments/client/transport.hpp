// One attempt over HTTP.
#pragma once

#include <chrono>
#include <string>

#include "exchange.hpp"

namespace payments::client {

class Transport {
  public:
    virtual ~Transport() = default;
    // `server` is a URL without a path. Never throws because of what the network does.
    virtual Attempt send(const std::string& server, const Request& request) = 0;
};

// A connection of its own for each attempt: after a failure the old one is not to be trusted, and a
// server's threads are not kept from others between two requests.
class HttpTransport : public Transport {
  public:
    // `patience` is the longest silence while waiting for an answer; then it is given up.
    explicit HttpTransport(std::chrono::milliseconds patience) : patience_(patience) {}
    Attempt send(const std::string& server, const Request& request) override;

  private:
    std::chrono::milliseconds patience_;
};

}  // namespace payments::client
