#include "failover/cluster.hpp"

#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kPatience = 120 * kSecond;  // with the first start
constexpr int kGroupOfFile = 1;              // in citus.yml

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

std::string patroni(const char* program) {
    return environment("CHAOS_PATRONI") + "/" + program;
}

std::string local(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

std::string text_of(const std::string& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

using Replacements = std::vector<std::pair<std::string, std::string>>;

std::string filled(std::string text, const Replacements& values) {
    for (const auto& [word, value] : values)
        for (std::size_t at; (at = text.find(word)) != std::string::npos;)
            text.replace(at, word.size(), value);
    return text;
}

// The configuration is that of the strictest mode.
Replacements relaxed(Mode mode) {
    Replacements values;
    if (mode != Mode::Strict)
        values.emplace_back("synchronous_mode_strict: true", "synchronous_mode_strict: false");
    if (mode == Mode::Async)
        values.emplace_back("synchronous_mode: true", "synchronous_mode: false");
    return values;
}

}  // namespace

const char* const kRoleQuery =
    "SELECT CASE WHEN pg_is_in_recovery() THEN 0"
    " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END";

Mode mode_of(const std::string& word) {
    for (const Mode mode : {Mode::Async, Mode::Sync, Mode::Strict})
        if (word == name_of(mode)) return mode;
    throw std::invalid_argument("no mode '" + word + "'");
}

const char* name_of(Mode mode) {
    if (mode == Mode::Async) return "async";
    return mode == Mode::Sync ? "sync" : "strict";
}

std::optional<pqxx::result> Asker::ask(const std::string& sql) {
    try {
        if (!connection_)
            connection_ =
                std::make_unique<pqxx::connection>(where_ + " application_name=chaos-watch");
        pqxx::nontransaction tx(*connection_);
        return tx.exec(sql);
    } catch (const pqxx::failure&) {
        connection_.reset();
        return std::nullopt;
    }
}

Node::Node(std::string its_name, const std::string& its_folder, int port, int its_rest_port,
           int its_proxy_port)
    : name(std::move(its_name)),
      folder(its_folder),
      rest_port(its_rest_port),
      proxy_port(its_proxy_port),
      server(its_folder + "/data", its_folder, port) {}

bool Node::kill_server() const {
    return server.kill();
}

Etcd::Etcd(const std::string& folder) : folder_(folder), port_(free_ports(1)[0]) {
    (void)::mkdir(folder.c_str(), 0700);
}

void Etcd::start() {
    const std::string clients = "http://" + local(port_);
    const std::string peers = "http://" + local(free_ports(1)[0]);
    process_ = Process(
        {environment("CHAOS_ETCD"), "--name", "chaos", "--data-dir", folder_ + "/etcd",
         "--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls",
         peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "chaos=" + peers},
        folder_, folder_ + "/etcd.log");
    // Before etcd has set the version of its cluster, it says "not_decided", and Patroni ends.
    const Micros deadline = now() + kPatience;
    for (std::string log; log.find("set the initial cluster version") == std::string::npos &&
                          log.find("set initial cluster version") == std::string::npos;
         log = text_of(folder_ + "/etcd.log")) {
        if (now() > deadline) throw std::runtime_error("etcd did not start");
        rest(50 * kMillisecond);
    }
}

Cluster::Cluster(const std::string& folder, const Etcd& etcd, Formation formation)
    : folder_(folder), etcd_(etcd), formation_(std::move(formation)) {
    const std::vector<int> ports = free_ports(3 * formation_.servers);
    for (std::size_t i = 0; i < formation_.servers; ++i) {
        const std::string name = formation_.prefix + std::to_string(i + 1);
        nodes_.push_back(std::make_unique<Node>(name, folder + "/" + name, ports[3 * i],
                                                ports[3 * i + 1], ports[3 * i + 2]));
        (void)::mkdir(nodes_.back()->folder.c_str(), 0700);
        write_configuration(*nodes_.back());
        askers_.push_back(nodes_.back()->asker());
    }
}

Cluster::~Cluster() {
    for (auto& node : nodes_) node->agent.kill();
    for (auto& node : nodes_) (void)node->kill_server();
    for (auto& node : nodes_) node->proxy.kill();
}

std::string Cluster::settings_of() const {
    std::string lines;
    for (const std::string& setting : formation_.settings) {
        const std::size_t at = setting.find('=');
        lines += "    " + setting.substr(0, at) + ": '" + setting.substr(at + 1) + "'\n";
    }
    return lines;
}

void Cluster::write_configuration(const Node& node) const {
    Replacements values = relaxed(formation_.mode);
    const int group = formation_.group.value_or(kGroupOfFile);
    if (group != kGroupOfFile)
        values.emplace_back("group: " + std::to_string(kGroupOfFile),
                            "group: " + std::to_string(group));
    for (const auto& [word, value] : Replacements{{"%name%", node.name},
                                                  {"%rest%", local(node.rest_port)},
                                                  {"%etcd%", local(node.proxy_port)},
                                                  {"%postgres%", local(node.server.port())},
                                                  {"%folder%", node.folder},
                                                  {"%bin%", environment("PG_BINDIR")},
                                                  {"%password%", environment("CHAOS_PASSWORD")},
                                                  {"%parameters%", settings_of()}})
        values.emplace_back(word, value);
    const std::string folder = environment("CHAOS_FAILOVER");
    const std::string citus = formation_.group ? text_of(folder + "/citus.yml") : "";
    std::ofstream(node.folder + "/patroni.yml")
        << filled(text_of(folder + "/patroni.yml") + citus, values);
}

void Cluster::start_proxy(Node& node) {
    node.proxy = Process(
        {environment("CHAOS_PATRONI") + "/python3", environment("CHAOS_FAILOVER") + "/proxy",
         std::to_string(node.proxy_port), std::to_string(etcd_.port())},
        node.folder, node.folder + "/proxy.log");
}

void Cluster::start_agent(Node& node) {
    node.agent = Process({patroni("patroni"), node.folder + "/patroni.yml"}, node.folder,
                         node.server.folder() + "/server.log");
}

// Patroni's own command, by the configuration of this node.
bool Cluster::control(std::vector<std::string> command, const Node& node,
                      const std::string& log) const {
    command.insert(command.begin(), {patroni("patronictl"), "-c", node.folder + "/patroni.yml"});
    if (formation_.group)
        command.insert(command.end(), {"--group", std::to_string(*formation_.group)});
    return run_program(command, folder_, log);
}

bool Cluster::switch_over(const Node& primary) const {
    return control({"switchover", "chaos", "--leader", primary.name, "--force"}, primary,
                   folder_ + "/switchover.log");
}

// The first one initializes the cluster, the others copy it.
void Cluster::start() {
    const Micros deadline = now() + kPatience;
    for (auto& node : nodes_) {
        start_proxy(*node);
        start_agent(*node);
        if (node != nodes_.front()) continue;
        while (!askers_[0].ask("SELECT").has_value()) {
            if (!formation_.group) create_database();
            if (now() > deadline) throw std::runtime_error("the first server did not start");
            rest(200 * kMillisecond);
        }
    }
    while (!complaint().empty()) {
        if (now() > deadline) throw std::runtime_error("the cluster did not start: " + complaint());
        rest(200 * kMillisecond);
    }
}

void Cluster::create_database() {
    try {
        pqxx::connection connection(
            "host=" + nodes_[0]->folder + " port=" + std::to_string(nodes_[0]->server.port()) +
            " user=postgres dbname=postgres target_session_attrs=read-write");
        pqxx::nontransaction(connection).exec("CREATE DATABASE chaos");
    } catch (const pqxx::failure&) {  // not yet
    }
}

std::string Cluster::complaint() {
    std::size_t primaries = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const auto role = askers_[i].ask(kRoleQuery);
        if (!role) return nodes_[i]->name + " does not answer";
        if ((*role)[0][0].as<int>() == 0) continue;
        primary_ = i;
        ++primaries;
    }
    if (primaries != 1) return std::to_string(primaries) + " primaries";
    const auto standbys = askers_[primary_].ask(
        "SELECT count(*) FILTER (WHERE state = 'streaming'),"
        " count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication");
    if (!standbys) return primary().name + " does not answer";
    const auto streaming = (*standbys)[0][0].as<std::size_t>();
    if (streaming != nodes_.size() - 1) return std::to_string(streaming) + " standbys stream";
    if (formation_.mode == Mode::Async) return {};
    if ((*standbys)[0][1].as<int>() == 0) return "no standby is synchronous";
    return has_known_standby() ? "" : "etcd knows of no synchronous standby";
}

// It may not take over before.
bool Cluster::has_known_standby() const {
    const std::string list = folder_ + "/list.log";
    std::ofstream(list, std::ios::trunc).close();
    return control({"list", "chaos"}, *nodes_[primary_], list) &&
           text_of(list).find("Sync Standby") != std::string::npos;
}

int Cluster::rewinds() const {
    int count = 0;
    for (const auto& node : nodes_) {
        const std::string log = text_of(node->server.folder() + "/server.log");
        for (std::size_t at = 0; (at = log.find("pg_rewind exit code=0", at)) != std::string::npos;
             ++at)
            ++count;
    }
    return count;
}

}  // namespace idem::chaos
