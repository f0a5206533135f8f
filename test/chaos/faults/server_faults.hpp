// Faults of the server and its sessions, and users' changes to the tables.
#pragma once

#include "faults/injector.hpp"
#include "faults/server.hpp"

namespace idem::chaos {

// Short faults, faults of some seconds, and users' changes to tables run side by side: an injector
// each.
enum class Lane { Moments, Maintenance, Users };

class ServerFaults : public Injector {
  public:
    // The server is for faults that stop it, which no scenario with a failover has; all others find
    // it by the target. `kinds` as --faults names them; `small_disk` is a folder on a disk that can
    // be filled.
    ServerFaults(Server& server, const Target& target, std::uint64_t seed,
                 const std::vector<std::string>& kinds, std::string small_disk);
    ~ServerFaults() override { stop(); }

    void start() override;
    // Throws std::invalid_argument for a kind that does not exist.
    static Lane lane_of(const std::string& kind);

  private:
    using Kind = bool (ServerFaults::*)();
    static const std::map<std::string, std::pair<Kind, int>>& faults();

    void heal() override;
    // A backend of a session, preferably one with a claim; 0 if there is none.
    int victim();
    bool signal_victim(const char* function);
    bool maintain(const std::string& sql);
    void sweep(int* count);

    bool cancel();
    bool terminate();
    bool kill();
    bool pause();
    bool crash();

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
    const std::string small_disk_;
};

}  // namespace idem::chaos
