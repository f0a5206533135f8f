// The network of one client process, with what goes wrong in it. Counts how each sending ends.
#pragma once

#include <string>

#include "board.hpp"
#include "client/transport.hpp"
#include "faults.hpp"

namespace payments {

class Wire : public client::HttpTransport {
  public:
    explicit Wire(Common& common);
    // What is to befall the line that is sent next. Sabotage gives each attempt a key of its own.
    void expect(Fault fault, LineState& line, bool sabotage);

    client::Attempt send(const std::string& server, const client::Request& request) override;

  protected:
    bool wants_answer(const client::Answer& without_body) override;

  private:
    bool planned(Fault fault) const { return fault_ == fault && !line_->struck; }
    client::Attempt send_sabotaged(const std::string& server, const client::Request& request);
    std::atomic<int>& ending_of(const client::Attempt& attempt);
    std::atomic<int>& ending_of(const client::Answer& answer);

    Common& common_;
    Endings& endings_;
    Fault fault_ = Fault::None;
    LineState* line_ = nullptr;
    bool sabotage_ = false;
    bool hung_up_ = false;  // the current attempt ended unheard
};

// Whether the answer says that it was stored by an earlier request.
bool is_replay(const client::Answer& answer);

}  // namespace payments
