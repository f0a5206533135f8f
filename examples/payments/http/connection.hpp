// One connection, one request: read as bytes come, without a thread, up to a deadline.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "message.hpp"
#include "routes.hpp"

namespace http {

using Clock = std::chrono::steady_clock;

class Connection {
  public:
    enum Phase { Reading, Working, Writing, Lingering, Done };

    Connection(int descriptor, const Routes& routes, Clock::time_point deadline);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    int descriptor() const noexcept { return descriptor_; }
    Phase phase() const noexcept { return phase_; }
    Clock::time_point deadline() const noexcept { return deadline_; }
    short events() const noexcept;  // that poll waits for

    // Does everything possible without waiting. Returns an answer that is known by now; the caller
    // passes it to `answer`. Does the same for a complete request: `phase` is then Working.
    std::optional<Answer> read();
    void answer(const Answer& answer, Clock::time_point deadline);
    void write(Clock::time_point linger_deadline);
    void expire(Clock::time_point linger_deadline);
    void hurry(Clock::time_point deadline);

    // The principal and route of a complete request.
    const Admission& admission() const { return *admission_; }
    Request& request() { return request_; }

  private:
    bool receive();
    bool read_head();
    bool read_body();
    void finish(Clock::time_point linger_deadline);

    const int descriptor_;
    const Routes& routes_;
    Clock::time_point deadline_;
    Phase phase_ = Reading;
    bool has_begun_ = false;
    bool refused_ = false;   // whatever its body
    bool complete_ = false;  // the request has been read to its end
    bool hung_up_ = false;
    std::string input_;
    std::size_t scanned_ = 0;
    Request request_;
    std::optional<Admission> admission_;
    Framing framing_;
    std::optional<Chunks> chunks_;
    std::string output_;
    std::size_t written_ = 0;
};

}  // namespace http
