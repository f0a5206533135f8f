// The throw-away server and its surroundings: stopping, crashing, restarting, cloning, promoting.
// The program runs as the user that owns it.
#pragma once

#include <string>
#include <vector>

#include "load/target.hpp"

namespace idem::chaos {

class Server {
  public:
    // From PGDATA, PGHOST (the folder of its socket), PGPORT and PG_BINDIR.
    Server(std::string data, std::string folder, int port);
    static Server from_environment();

    std::string connection_string() const;
    std::string connection_string(const std::string& database) const;
    void stop_immediately();
    // `mode` as pg_ctl has it.
    void stop(const std::string& mode) const;
    // Kills the server's first process; the others notice. Returns whether there was one.
    bool kill() const;
    void start();
    void crash_and_restart();
    void await_ready() const;

    // A running streaming standby in another folder.
    Server clone(const std::string& folder) const;
    void promote();

    // Replaces the database by a restored dump. Connected clients are terminated; `meanwhile` is
    // SQL that changes the cluster between dump and restore.
    void restore_from_dump(const std::string& meanwhile) const;

    // Each in a new connection; returns the rows' first column.
    std::vector<std::string> query(const std::string& sql) const;
    std::string value(const std::string& sql) const;
    void set(const std::string& setting, const std::string& value) const;

    const std::string& data() const { return data_; }
    const std::string& folder() const { return folder_; }
    int port() const { return port_; }

  private:
    void control(const std::string& arguments) const;
    void rename_database(const std::string& from, const std::string& to) const;

    std::string data_;
    std::string folder_;
    int port_;
};

// pgbouncer in transaction mode before a server, as long as the object lives.
class Pooler {
  public:
    Pooler(const Server& server, const std::string& folder);
    ~Pooler();
    Pooler(const Pooler&) = delete;
    Pooler& operator=(const Pooler&) = delete;

    // Empty if there is no pgbouncer here.
    const std::string& connection_string() const { return connection_string_; }

  private:
    int pid_ = 0;
    std::string connection_string_;
};

}  // namespace idem::chaos
