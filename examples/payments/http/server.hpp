// A server process: listens, says where, and ends in good order on SIGTERM or SIGINT.
#pragma once

#include <httplib.h>

#include <string>

#include "address.hpp"
#include "routes.hpp"

namespace http {

class Server {
  public:
    explicit Server(std::size_t threads);

    Routes& routes() { return routes_; }

    // Prints "listening on HOST:PORT" when ready; returns when the last request is answered after
    // SIGTERM or SIGINT. Throws std::runtime_error when it can't listen. To be called from the main
    // thread, before any other thread is started: the signals are blocked for all.
    void run(const Address& address);

  private:
    // Opens what httplib keeps for itself: the listening socket.
    class Httplib : public httplib::Server {
      public:
        void lengthen_queue();
    };

    int bind(const Address& address);

    Httplib server_;
    Routes routes_{server_};
};

}  // namespace http
