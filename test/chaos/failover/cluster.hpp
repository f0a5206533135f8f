// Servers on this machine under Patroni that take over from each other: an agent for each, and a
// proxy between each agent and etcd. All of them are our processes and have their files below one
// folder.
#pragma once

#include <memory>
#include <optional>
#include <pqxx/pqxx>

#include "failover/process.hpp"
#include "faults/server.hpp"

namespace idem::chaos {

// How commits wait for standbys.
enum class Mode {
    Async,
    Sync,    // synchronous_mode: without a standby they do not wait
    Strict,  // synchronous_mode_strict: they wait until there is one
};
Mode mode_of(const std::string& word);  // throws std::invalid_argument
const char* name_of(Mode mode);

// After so long without news from an agent another one takes over: in patroni.yml, and Patroni's
// minimum.
inline constexpr int kTtl = 20;  // seconds

// Asks one server, on a connection that is kept open.
class Asker {
  public:
    explicit Asker(std::string where) : where_(std::move(where)) {}
    // Empty if the server does not answer.
    std::optional<pqxx::result> ask(const std::string& sql);

  private:
    const std::string where_;
    std::unique_ptr<pqxx::connection> connection_;
};

class Node {
  public:
    Node(std::string name, const std::string& folder, int port, int rest_port, int proxy_port);

    const std::string name;
    const std::string folder;
    const int rest_port;
    const int proxy_port;
    const Server server;  // its log is also the agent's
    Process proxy;
    Process agent;

    // Kills the server's first process; the others notice. Returns whether there was one.
    bool kill_server() const;
    Asker asker() const { return Asker(server.connection_string() + " connect_timeout=5"); }
};

// Of a primary the timeline, 0 of a standby.
extern const char* const kRoleQuery;

// Of one member, in a folder that is made. From the environment: CHAOS_ETCD, the program.
class Etcd {
  public:
    explicit Etcd(const std::string& folder);
    void start();
    int port() const { return port_; }

  private:
    const std::string folder_;
    const int port_;
    Process process_;
};

// The servers of one cluster. Their names begin with the prefix.
struct Formation {
    Mode mode = Mode::Sync;
    std::size_t servers = 3;
    std::string prefix = "n";
    std::optional<int> group;           // of Citus; its other groups use the same etcd
    std::vector<std::string> settings;  // of the servers
};

class Cluster {
  public:
    // Empty. From the environment: CHAOS_PATRONI and PG_BINDIR, the folders of the programs,
    // CHAOS_FAILOVER, which is the folder of this file's proxy and patroni.yml or of copies, and
    // CHAOS_PASSWORD.
    Cluster(const std::string& folder, const Etcd& etcd, Formation formation);
    // Kills everything.
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    // Returns when all stream; throws if that fails.
    void start();

    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

    void start_agent(Node& node);
    void start_proxy(Node& node);
    // By Patroni's own command, which chooses the new primary. Returns whether it succeeded.
    bool switch_over(const Node& primary) const;

    // Why the cluster is not whole. Empty if there is one primary and all others stream from it; in
    // synchronous modes one streams synchronously, and etcd knows it.
    std::string complaint();
    // The primary when complaint() was last called.
    Node& primary() { return *nodes_.at(primary_); }

    // How often a server was rewound, by the agents' logs.
    int rewinds() const;

  private:
    void write_configuration(const Node& node) const;
    std::string settings_of() const;
    void create_database();
    bool has_known_standby() const;
    bool control(std::vector<std::string> command, const Node& node, const std::string& log) const;

    const std::string folder_;
    const Etcd& etcd_;
    const Formation formation_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<Asker> askers_;
    std::size_t primary_ = 0;
};

}  // namespace idem::chaos
