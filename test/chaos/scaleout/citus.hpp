// A Citus cluster of servers on this machine: which of them belong to it, and how they come and go.
#pragma once

#include <memory>
#include <mutex>

#include "faults/server.hpp"
#include "load/target.hpp"

namespace idem::chaos {

class Citus {
  public:
    struct Worker {
        const std::string name;  // of its folder
        Server server;
        bool is_member = false;
    };
    using Workers = std::vector<Worker*>;

    // From the environment: CHAOS_CITUS, the folders of running servers, the coordinator's first,
    // and PGPORT. The target hears of every change.
    explicit Citus(Target& target);

    // All but the last join.
    void set_up();
    // Each node separately, the coordinator first; also nodes that are no members.
    Workers all();
    Workers members();
    Worker& coordinator() { return *nodes_.front(); }
    // A worker that is a member, or one that is not; nullptr: there is none.
    Worker* worker(bool member, std::size_t number);

    void join(Worker& worker);
    // Drains and removes the node, or continues an interrupted removal. It may join again, as if it
    // were new.
    void leave(Worker& worker, const std::string& mode);
    // A member again, where leaving has failed before the end.
    void stay(Worker& worker);

    // Returns when all nodes answer and no transaction is prepared any more.
    void await_rest();

    // ('folder', port) as arguments of Citus's functions.
    static std::string address(const Worker& worker);
    // In one connection, once: any error is thrown. `limit` in milliseconds.
    static std::vector<std::string> ask(const Server& server, const std::string& sql,
                                        int limit = 60000);

  private:
    static void make_database(const Worker& worker);
    void publish();
    void set_member(Worker& worker, bool member);
    bool is_known(const Worker& worker);
    void remove(const Worker& worker, const std::string& mode);

    Target& target_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Worker>> nodes_;
};

}  // namespace idem::chaos
