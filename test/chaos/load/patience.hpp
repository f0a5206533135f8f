// A client's own limit for a call. The server may be stuck in a COMMIT that no standby confirms any
// more, which neither libpq nor statement_timeout ends.
#pragma once

#include <pqxx/pqxx>
#include <utility>

#include "check/history.hpp"

namespace idem::chaos {

// While it lives: cancels the call when the limit has passed, and a second later shuts the
// connection down. No limit (0) waits forever.
class Patience {
  public:
    Patience(pqxx::connection& connection, Micros patience);
    ~Patience();
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;

  private:
    const bool limited_;
};

// Hears the warning that a commit has been made, but perhaps not on the standby, or not yet on all
// nodes.
class Warnings : public pqxx::errorhandler {
  public:
    explicit Warnings(pqxx::connection& connection) : pqxx::errorhandler(connection) {}
    bool operator()(const char message[]) noexcept override;
    bool not_replicated() const { return not_replicated_; }
    // Whether there was any since this was last asked.
    bool heard() { return std::exchange(heard_, false); }

  private:
    bool not_replicated_ = false;
    bool heard_ = false;
};

}  // namespace idem::chaos
