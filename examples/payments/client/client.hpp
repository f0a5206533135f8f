// A client that asks again, with the same key, until an answer is final or its attempts end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exchange.hpp"
#include "retry.hpp"
#include "transport.hpp"

namespace payments::client {

class Client {
  public:
    // Called after each attempt. `pause` is the time until the next one; empty: none follows.
    using Observer =
        std::function<void(int number, const Attempt& attempt, std::optional<Milliseconds> pause)>;

    // Each retry goes to the next of the servers (URLs without a path), of which there is at least
    // one: a service that is down no longer listens at its address. The transport must outlive the
    // client.
    Client(std::vector<std::string> servers, Transport& transport, const RetryRules& rules);

    void observe(Observer observer) { observer_ = std::move(observer); }
    // The final answer, or the last attempt's if the attempts are used up.
    Attempt send(const Request& request);

  private:
    std::optional<Milliseconds> next_pause(int number, const Request& request,
                                           const Attempt& attempt);

    std::vector<std::string> servers_;
    std::size_t server_ = 0;
    Transport& transport_;
    RetryRules rules_;
    Backoff backoff_;
    Observer observer_;
};

}  // namespace payments::client
