// One attempt over HTTP.
#pragma once

#include <chrono>
#include <string>

#include "exchange.hpp"

namespace payments::client {

class Transport {
  public:
    virtual ~Transport() = default;
    // `server` is a URL without a path. Never throws because of the network.
    virtual Attempt send(const std::string& server, const Request& request) = 0;
};

// Makes a connection for each attempt: after a failure the old one cannot be trusted, and an idle
// one would keep a server's thread from other clients.
class HttpTransport : public Transport {
  public:
    // `patience` is the longest silence while waiting for an answer; the attempt then ends.
    explicit HttpTransport(std::chrono::milliseconds patience) : patience_(patience) {}
    Attempt send(const std::string& server, const Request& request) override;

  private:
    std::chrono::milliseconds patience_;
};

}  // namespace payments::client
