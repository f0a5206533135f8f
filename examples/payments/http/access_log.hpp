// One line a request: method, path, status, outcome, milliseconds. Never a key or a body.
#pragma once

#include <httplib.h>

#include <chrono>
#include <mutex>
#include <ostream>
#include <thread>
#include <unordered_map>

namespace http {

class AccessLog {
  public:
    explicit AccessLog(std::ostream& out) : out_(out) {}

    // The server must not outlive the log while it is working.
    void watch(httplib::Server& server);

    // A request begins on this thread.
    void begin();

  private:
    using Clock = std::chrono::steady_clock;

    void write(const httplib::Request& request, const httplib::Response& response);
    long long milliseconds_since_begin();

    std::ostream& out_;
    std::mutex mutex_;
    std::unordered_map<std::thread::id, Clock::time_point> begun_;
};

}  // namespace http
