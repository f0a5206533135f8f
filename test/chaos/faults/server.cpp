#include "faults/server.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <pqxx/pqxx>
#include <stdexcept>

#include "clock.hpp"

namespace idem::chaos {
namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

std::string program(const char* name) {
    return environment("PG_BINDIR") + "/" + name;
}

void shell(const std::string& command, const std::string& log) {
    const int status = std::system((command + " >>" + log + " 2>&1 </dev/null").c_str());
    if (status != 0) throw std::runtime_error("failed: " + command + " (see " + log + ")");
}

}  // namespace

Server::Server(std::string data, std::string folder, int port)
    : data_(std::move(data)), folder_(std::move(folder)), port_(port) {}

Server Server::from_environment() {
    return {environment("PGDATA"), environment("PGHOST"), std::stoi(environment("PGPORT"))};
}

std::string Server::connection_string() const {
    return connection_string("chaos");
}

std::string Server::connection_string(const std::string& database) const {
    return "host=" + folder_ + " port=" + std::to_string(port_) +
           " user=postgres dbname=" + database;
}

void Server::control(const std::string& arguments) const {
    shell(program("pg_ctl") + " -D " + data_ + " -l " + folder_ + "/server.log " + arguments,
          folder_ + "/control.log");
}

void Server::stop_immediately() {
    stop("immediate");
}

void Server::stop(const std::string& mode) const {
    control("stop -m " + mode + " -w -s");
}

bool Server::kill() const {
    int pid = 0;
    std::ifstream(data_ + "/postmaster.pid") >> pid;
    return pid > 0 && ::kill(pid, SIGKILL) == 0;
}

void Server::start() {
    control("start -w -s -t 60 -o '-k " + folder_ + " -p " + std::to_string(port_) + "'");
}

void Server::crash_and_restart() {
    stop_immediately();
    start();
}

void Server::await_ready() const {
    (void)query("SELECT 1");
}

void Server::promote() {
    control("promote -w -s -t 60");
}

Server Server::clone(const std::string& folder) const {
    (void)::mkdir(folder.c_str(), 0700);
    Server standby(folder + "/data", folder, port_);
    shell(program("pg_basebackup") + " -R -c fast -X stream -D " + standby.data_ + " -d '" +
              connection_string() + " application_name=standby'",
          folder + "/control.log");
    std::ofstream(standby.data_ + "/postgresql.auto.conf", std::ios::app)
        << "primary_conninfo = '" << connection_string() << " application_name=standby'\n"
        << "synchronous_standby_names = ''\n";
    standby.start();
    return standby;
}

// A client that reconnects at once waits for the lock that the renaming takes.
void Server::rename_database(const std::string& from, const std::string& to) const {
    const Micros deadline = now() + 60 * kSecond;
    for (;; rest(50 * kMillisecond)) {
        try {
            pqxx::connection connection(connection_string("postgres"));
            pqxx::nontransaction tx(connection);
            tx.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" +
                    from + "'");
            tx.exec("ALTER DATABASE " + from + " RENAME TO " + to);
            return;
        } catch (const pqxx::failure&) {
            if (now() > deadline) throw;
        }
    }
}

// As is usual: pg_restore goes on after an error.
void Server::restore_from_dump(const std::string& meanwhile) const {
    const std::string log = folder_ + "/restore.log";
    const std::string file = folder_ + "/chaos.dump";
    rename_database("chaos", "chaos_before");
    shell(
        program("pg_dump") + " -Fc -f " + file + " -d '" + connection_string("chaos_before") + "'",
        log);
    pqxx::connection connection(connection_string("postgres"));
    pqxx::nontransaction tx(connection);
    tx.exec(meanwhile);
    tx.exec("CREATE DATABASE chaos_after TEMPLATE template0");
    shell("(" + program("pg_restore") + " -d '" + connection_string("chaos_after") + "' " + file +
              " || true)",
          log);
    rename_database("chaos_after", "chaos");
}

// The server may be recovering, or lack a resource.
std::vector<std::string> Server::query(const std::string& sql) const {
    const Micros deadline = now() + 60 * kSecond;
    for (;;) {
        try {
            pqxx::connection connection(connection_string() + " application_name=chaos-admin");
            pqxx::nontransaction tx(connection);
            std::vector<std::string> values;
            for (const auto& row : tx.exec(sql))
                if (row.size() > 0) values.emplace_back(row[0].c_str());
            return values;
        } catch (const pqxx::failure&) {
            if (now() > deadline) throw;
        }
        rest(50 * kMillisecond);
    }
}

std::string Server::value(const std::string& sql) const {
    return query(sql).at(0);
}

void Server::set(const std::string& setting, const std::string& value) const {
    query("ALTER SYSTEM SET " + setting + " = '" + value + "'");
    query("SELECT pg_reload_conf()");
}

Pooler::Pooler(const Server& server, const std::string& folder) {
    const char* const path = "/usr/sbin/pgbouncer";
    if (::access(path, X_OK) != 0) return;
    (void)::mkdir(folder.c_str(), 0700);
    std::ofstream(folder + "/pgbouncer.ini")
        << "[databases]\nchaos = " << server.connection_string() << "\n[pgbouncer]\nlisten_addr =\n"
        << "listen_port = 65433\nunix_socket_dir = " << folder << "\nauth_type = any\n"
        << "pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 200\n"
        << "server_login_retry = 0.1\nquery_wait_timeout = 3\nlogfile = " << folder
        << "/pgbouncer.log\n";
    pid_ = ::fork();
    if (pid_ == 0) {
        (void)!std::freopen((folder + "/pgbouncer.err").c_str(), "w", stderr);
        (void)!std::freopen("/dev/null", "w", stdout);
        ::execl(path, path, (folder + "/pgbouncer.ini").c_str(), nullptr);
        ::_exit(127);
    }
    connection_string_ = "host=" + folder + " port=65433 dbname=chaos user=postgres";
}

Pooler::~Pooler() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGTERM);
    (void)::waitpid(pid_, nullptr, 0);
}

}  // namespace idem::chaos
