#include "scaleout/citus.hpp"

#include <cstdlib>
#include <pqxx/pqxx>
#include <sstream>
#include <stdexcept>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kForRest = 120 * kSecond;
constexpr Micros kForLeaving = 30 * kSecond;

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

std::string name_of(const std::string& folder) {
    return folder.substr(folder.rfind('/') + 1);
}

// Until a query counts none.
void await_none(const Server& server, const std::string& query, const std::string& what) {
    const Micros deadline = now() + kForLeaving;
    while (Citus::ask(server, "SELECT count(*) FROM " + query).at(0) != "0") {
        if (now() > deadline) throw std::runtime_error(what);
        rest(50 * kMillisecond);
    }
}

}  // namespace

Citus::Citus(Target& target) : target_(target) {
    std::istringstream folders(environment("CHAOS_CITUS"));
    const int port = std::stoi(environment("PGPORT"));
    for (std::string folder; folders >> folder;)
        nodes_.push_back(std::unique_ptr<Worker>(
            new Worker{name_of(folder), Server(folder + "/data", folder, port), false}));
    if (nodes_.size() < 4) throw std::runtime_error("CHAOS_CITUS names too few servers");
}

std::string Citus::address(const Worker& worker) {
    return "'" + worker.server.folder() + "', " + std::to_string(worker.server.port());
}

std::vector<std::string> Citus::ask(const Server& server, const std::string& sql, int limit) {
    pqxx::connection connection(server.connection_string() +
                                " connect_timeout=10 application_name=chaos-admin");
    pqxx::nontransaction tx(connection);
    tx.exec("SET statement_timeout = " + std::to_string(limit));
    std::vector<std::string> values;
    for (const auto& row : tx.exec(sql))
        if (row.size() > 0) values.emplace_back(row[0].c_str());
    return values;
}

// Citus's metadata belong to a database; a node's earlier metadata go with it.
void Citus::make_database(const Worker& worker) {
    {
        pqxx::connection connection(worker.server.connection_string("postgres"));
        pqxx::nontransaction tx(connection);
        tx.exec("DROP DATABASE IF EXISTS chaos WITH (FORCE)");
        tx.exec("CREATE DATABASE chaos");
    }
    ask(worker.server, "CREATE EXTENSION citus");
}

void Citus::set_up() {
    make_database(coordinator());
    make_database(*nodes_.back());
    coordinator().is_member = true;
    ask(coordinator().server, "SELECT citus_set_coordinator_host(" + address(coordinator()) + ")");
    for (std::size_t i = 1; i + 1 < nodes_.size(); ++i) join(*nodes_[i]);
}

// A witness needs nothing of Citus.
void Citus::publish() {
    std::vector<std::string> asked;
    std::vector<std::string> all;
    for (const auto& node : nodes_) {
        if (node->is_member) asked.push_back(node->server.connection_string());
        all.push_back(node->server.connection_string("postgres"));
    }
    target_.set_nodes(asked, all);
}

void Citus::set_member(Worker& worker, bool member) {
    const std::lock_guard<std::mutex> guard(mutex_);
    worker.is_member = member;
    publish();
}

Citus::Workers Citus::all() {
    Workers found;
    for (const auto& node : nodes_) found.push_back(node.get());
    return found;
}

Citus::Workers Citus::members() {
    const std::lock_guard<std::mutex> guard(mutex_);
    Workers found;
    for (const auto& node : nodes_)
        if (node->is_member) found.push_back(node.get());
    return found;
}

Citus::Worker* Citus::worker(bool member, std::size_t number) {
    const std::lock_guard<std::mutex> guard(mutex_);
    Workers found;
    for (const auto& node : nodes_)
        if (node != nodes_.front() && node->is_member == member) found.push_back(node.get());
    return found.empty() ? nullptr : found[number % found.size()];
}

bool Citus::is_known(const Worker& worker) {
    return ask(coordinator().server, "SELECT count(*) FROM pg_dist_node WHERE nodename = '" +
                                         worker.server.folder() + "'")
               .at(0) != "0";
}

// Clients ask the node at once, before it has copies of the reference tables. A node that has left
// before, or whose earlier join was interrupted, begins again.
void Citus::join(Worker& worker) {
    if (!is_known(worker)) make_database(worker);
    ask(coordinator().server, "SELECT citus_add_node(" + address(worker) + ")");
    stay(worker);
}

void Citus::stay(Worker& worker) {
    if (!is_known(worker)) return;
    ask(coordinator().server,
        "SELECT citus_set_node_property(" + address(worker) + ", 'shouldhaveshards', true)");
    set_member(worker, true);
}

// The node's clients first go elsewhere.
void Citus::leave(Worker& worker, const std::string& mode) {
    set_member(worker, false);
    if (is_known(worker)) remove(worker, mode);
    make_database(worker);
}

// After its clients' prepared transactions are settled.
void Citus::remove(const Worker& worker, const std::string& mode) {
    const std::string group = ask(worker.server, "SELECT groupid FROM pg_dist_local_group").at(0);
    await_none(worker.server, "pg_stat_activity WHERE application_name LIKE 'chaos %'",
               "sessions stay at " + worker.name);
    ask(coordinator().server, "SELECT citus_drain_node(" + address(worker) + ", '" + mode + "')");
    for (const auto& node : nodes_)
        await_none(node->server, "pg_prepared_xacts WHERE gid LIKE 'citus\\_" + group + "\\_%'",
                   "transactions of " + worker.name + " stay prepared");
    ask(coordinator().server, "SELECT citus_remove_node(" + address(worker) + ")");
}

void Citus::await_rest() {
    const Micros deadline = now() + kForRest;
    for (const auto& node : nodes_) {
        if (!node->is_member && !is_known(*node)) continue;
        node->server.await_ready();
        while (node->server.value("SELECT count(*) FROM pg_prepared_xacts") != "0" &&
               now() < deadline)
            rest(100 * kMillisecond);
    }
}

}  // namespace idem::chaos
