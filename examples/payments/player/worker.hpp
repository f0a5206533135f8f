// One client process: takes lines from the board and has each answered.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "board.hpp"
#include "client/client.hpp"
#include "input.hpp"
#include "options.hpp"
#include "wire.hpp"

namespace payments {

class Worker {
  public:
    Worker(const Options& options, std::vector<std::string> servers,
           const std::vector<Request>& requests, Board& board, std::size_t number);
    // Returns when no line is left or the board says stop. Throws if a line gets no answer.
    void run();

  private:
    bool stopping() const;
    const Request* next_request();
    void play(const Request& request);
    void meet_twin(const Request& request);
    void wait_for_answer_to(int line);
    void send(const Request& request);
    void remember(const Request& request, const client::Answer& answer);

    const Options& options_;
    const std::vector<Request>& requests_;
    Board& board_;
    Desk& desk_;
    pid_t parent_;
    Wire wire_;
    client::Client client_;
};

}  // namespace payments
