// Does harm while the sessions work: which, when and to whom is drawn from the seed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <pqxx/pqxx>
#include <thread>

#include "faults/server.hpp"
#include "load/random.hpp"

namespace idem::chaos {

// What takes a moment, what takes seconds, and what users do to tables go on side by side: an
// injector each.
enum class Lane { Moments, Maintenance, Users };

class Injector {
  public:
    // The server is for faults that stop it, which no scenario with a failover has; all others find
    // it by the target. `kinds` as --faults names them; `small_disk` is a folder on a disk that can
    // be filled.
    Injector(Server& server, const Target& target, std::uint64_t seed,
             std::vector<std::string> kinds, std::string small_disk);
    ~Injector() { stop(); }
    Injector(const Injector&) = delete;
    Injector& operator=(const Injector&) = delete;

    void start();
    void stop();
    // How often each kind was done, and not merely tried.
    const std::map<std::string, int>& fired() const { return fired_; }
    // Throws std::invalid_argument for a kind that does not exist.
    static Lane lane_of(const std::string& kind);

  private:
    using Fault = bool (Injector::*)();
    static const std::map<std::string, std::pair<Fault, int>>& faults();

    void run();
    void fire();
    // A backend of a session, rather one with a claim; 0 if there is none.
    int victim();
    bool signal_victim(const char* function);
    pqxx::result query(const std::string& sql);
    bool maintain(const std::string& sql);
    void sweep(int* count);

    bool cancel();
    bool terminate();
    bool kill();
    bool pause();
    bool crash();
    // Undoes what a fault would have undone itself, had nothing come between.
    void heal();

    bool vacuum();
    bool reindex();
    bool add_triggers();
    bool drop_triggers();
    bool give_away();
    bool give(const std::string& role);
    bool fill_locks();
    bool fill_connections();
    bool fill_disk();

    Server& server_;
    const Target& target_;
    Random random_;
    const std::vector<std::string> kinds_;
    const std::string small_disk_;
    std::map<std::string, int> fired_;
    std::atomic<bool> stop_{false};
    std::unique_ptr<pqxx::connection> admin_;
    std::vector<std::thread> threads_;
};

}  // namespace idem::chaos
