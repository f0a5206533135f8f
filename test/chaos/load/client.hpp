// One client's connection and its part of the history. It tells "refused" from "lost", reconnects,
// and finds out when no part of a lost call can still be running.
#pragma once

#include <atomic>
#include <memory>
#include <pqxx/pqxx>

#include "clock.hpp"
#include "load/patience.hpp"
#include "load/target.hpp"

namespace idem::chaos {

// How a client handles servers that take over from each other.
struct Habits {
    bool failover = false;         // asks for the timeline that it is connected to
    Micros patience = 0;           // with a call; 0: for ever
    bool trusts_warnings = false;  // takes a commit for one that the standby need not have got
    bool any_node = false;         // asks all nodes of a Citus cluster, a connection each time
};

class Client {
  public:
    Client(const Target& target, int session, bool pooled, const Habits& habits = {});

    // Connects, as often as it takes; false if `give_up` is set meanwhile.
    bool connect(const std::atomic<bool>& give_up);

    enum class Status { Ok, Refused, Lost };

    // Runs a call and records it. The query of a protocol function has the columns of kColumns.
    Status run(Call call, const std::string& sql);
    // The same without a history.
    Status silently(const std::string& sql);
    // Sends the query and hangs up without reading an answer.
    void send_and_hang_up(Call call, const std::string& sql);
    // Records a call that needs no query.
    void note(Call call);

    const Answer& answer() const { return answer_; }
    const std::string& sqlstate() const { return sqlstate_; }
    bool pooled() const { return pooled_; }
    bool connected() const { return connection_ != nullptr; }
    std::string quote(const std::string& text) const;

    // After a loss: waits until no backend serves the lost connection, or its server is no longer
    // the primary, and sets that moment as the latest one of the unanswered calls.
    void await_end_of_lost();
    // Whether the server has a prepared transaction of this name.
    bool is_prepared(const std::string& name);
    // Ends a prepared transaction, with as many attempts as needed.
    void end_prepared(Call call, const std::string& name, bool commit);

    std::vector<Call>& calls() { return calls_; }
    const std::vector<Call>& calls() const { return calls_; }

  private:
    void lose();
    void sign(Call* call) const;
    void receive(const pqxx::result& rows);
    std::unique_ptr<pqxx::connection> open(const std::string& where, const std::string& name);
    pqxx::result ask_directly(const std::string& sql);
    bool is_gone();
    bool is_gone_everywhere();
    bool is_settled();
    void learn_traces();

    const Target& target_;
    const int session_;
    const bool pooled_;
    const Habits habits_;
    int connections_ = 0;
    int timeline_ = 0;
    int node_ = 0;
    std::string application_;
    std::string where_;
    std::string traces_;  // any_node: what the connection does on other nodes, in pg_stat_activity
    std::string prepared_;  // ... and the names of what it prepares there
    std::unique_ptr<pqxx::connection> connection_;
    std::unique_ptr<Warnings> warnings_;  // of the connection, and gone before it
    Answer answer_;
    std::string sqlstate_;
    std::string message_;  // of an internal error
    std::vector<Call> calls_;
    std::vector<std::size_t> unanswered_;
};

}  // namespace idem::chaos
