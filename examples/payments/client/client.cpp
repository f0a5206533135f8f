#include "client.hpp"

#include <stdexcept>
#include <thread>

namespace payments::client {

Client::Client(std::vector<std::string> servers, Transport& transport, const RetryRules& rules)
    : servers_(std::move(servers)), transport_(transport), rules_(rules), backoff_(rules) {
    if (servers_.empty()) throw std::invalid_argument("no server");
}

Attempt Client::send(const Request& request) {
    for (int number = 1;; ++number) {
        const Attempt attempt = transport_.send(servers_[server_], request);
        const auto pause = next_pause(number, request, attempt);
        if (observer_) observer_(number, attempt, pause);
        if (!pause) return attempt;
        std::this_thread::sleep_for(*pause);
        server_ = (server_ + 1) % servers_.size();
    }
}

std::optional<Milliseconds> Client::next_pause(int number, const Request& request,
                                               const Attempt& attempt) {
    if (number >= rules_.attempts || !worth_retrying(request, attempt)) return std::nullopt;
    return backoff_.pause_after(number, attempt);
}

}  // namespace payments::client
