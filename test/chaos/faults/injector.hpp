// Injects faults while others work; the seed decides which and when. Derived classes know the
// faults: server_faults those of the server and its sessions, service_faults those of a service.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <thread>
#include <vector>

#include "check/history.hpp"
#include "load/random.hpp"
#include "load/target.hpp"

namespace idem::chaos {

class Injector {
  public:
    // `pause` is the mean time between two faults.
    Injector(const Target& target, Random random, Micros pause);
    // The threads use members of derived classes, so their destructors stop the threads.
    virtual ~Injector() = default;
    Injector(const Injector&) = delete;
    Injector& operator=(const Injector&) = delete;

    virtual void start();
    void stop();
    // How often each kind actually happened.
    const std::map<std::string, int>& fired() const { return fired_; }

  protected:
    using Fault = std::function<bool()>;  // whether it was done

    // A transaction that decides about a key, or executes it. No `xid`: it has written nothing yet.
    struct Holder {
        int backend;
        std::string session;  // its application_name
        std::string xid;      // with its epoch
    };

    void add(const std::string& kind, int weight, Fault fault);
    // Which kind comes next.
    virtual std::string draw() { return random_.weighted(weights_); }
    // Undoes any fault that was interrupted before it could undo itself.
    virtual void heal() {}

    // Of the sessions whose names are LIKE this.
    std::vector<Holder> holders(const std::string& sessions);
    // Asks on a connection that is kept open, or on a new one.
    pqxx::result query(const std::string& sql);
    std::string direct() const { return target_.direct() + " application_name=chaos-admin"; }

    Random random_;
    const Micros pause_;
    std::map<std::string, int> fired_;
    std::atomic<bool> stop_{false};
    std::vector<std::pair<std::string, int>> weights_;
    std::vector<std::thread> threads_;

  private:
    void fire();

    const Target& target_;
    std::map<std::string, Fault> faults_;
    std::unique_ptr<pqxx::connection> admin_;
};

}  // namespace idem::chaos
