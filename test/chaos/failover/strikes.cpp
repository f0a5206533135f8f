#include "failover/strikes.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kForTakeover = (kTtl + 40) * kSecond;
constexpr Micros kForWhole = 120 * kSecond;
// How long there are two primaries: longer than the patience of clients, so that they cancel
// commits.
constexpr Micros kWithTwo = 8 * kSecond;
constexpr int kBeforeTakeover = 5;      // seconds, a watchdog's margin
constexpr Micros kQuiet = 2 * kSecond;  // work without harm, before each strike

void kill_server(Cluster&, Node& node) {
    (void)node.kill_server();
}
void kill_agent(Cluster&, Node& node) {
    node.agent.kill();
}
void kill_both(Cluster&, Node& node) {
    node.agent.kill();
    (void)node.kill_server();
}
// The server goes on until shortly before another may take over, as with a watchdog.
void kill_agent_then_server(Cluster&, Node& node) {
    node.agent.kill();
    rest((kTtl - kBeforeTakeover) * kSecond);
    (void)node.kill_server();
}
void freeze_agent(Cluster&, Node& node) {
    node.agent.freeze();
}
void thaw_agent(Cluster&, Node& node) {
    node.agent.go_on();
}
void switch_over(Cluster& cluster, Node& node) {
    (void)cluster.switch_over(node);
}
void kill_proxy(Cluster&, Node& node) {
    node.proxy.kill();
}
void freeze_proxy(Cluster&, Node& node) {
    node.proxy.freeze();
}
void thaw_proxy(Cluster&, Node& node) {
    node.proxy.go_on();
}
void start_proxy(Cluster& cluster, Node& node) {
    cluster.start_proxy(node);
}
void start_agent(Cluster& cluster, Node& node) {
    cluster.start_agent(node);
}
void nothing(Cluster&, Node&) {}

std::string seconds(Micros duration) {
    char text[32];
    (void)std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(duration) / kSecond);
    return text;
}

// The longest time without an acknowledgement around a strike.
Micros gap_of(const Strike& strike, const std::vector<Micros>& moments) {
    Micros longest = 0;
    for (std::size_t i = 1; i < moments.size(); ++i)
        if (moments[i] >= strike.from && moments[i - 1] <= strike.whole)
            longest = std::max(longest, moments[i] - moments[i - 1]);
    return longest;
}

}  // namespace

void print_strikes(const std::vector<Strike>& strikes, const std::vector<Micros>& moments) {
    std::cout << "  fault        primary  taken over  nothing acknowledged  back\n";
    for (const Strike& strike : strikes) {
        const bool taken = !strike.successor.empty();
        char line[128];
        (void)std::snprintf(line, sizeof line, "  %-12s %s %-2s    %10s  %20s  %s",
                            strike.kind.c_str(), strike.victim.c_str(), strike.successor.c_str(),
                            taken ? seconds(strike.taken_over - strike.from).c_str() : "-",
                            seconds(gap_of(strike, moments)).c_str(),
                            seconds(strike.whole - strike.undone).c_str());
        std::cout << line << "\n";
    }
}

const std::vector<Strikes::Kind>& Strikes::kinds() {
    static const std::vector<Kind> kKinds = {
        {"server", "the primary's server is killed", kill_server, nothing, true, false},
        {"agent", "the primary's agent is killed", kill_agent, start_agent, true, true},
        {"both", "the primary's server and agent are killed", kill_both, start_agent, true, false},
        {"watchdog", "the primary's agent is killed, and its server by the watchdog",
         kill_agent_then_server, start_agent, true, false},
        {"switchover", "a switchover", switch_over, nothing, true, false},
        {"freeze", "the primary's agent is stopped", freeze_agent, thaw_agent, true, true},
        {"refuse", "the primary's agent is refused by etcd", kill_proxy, start_proxy, true, false},
        {"swallow", "the primary's agent gets no answer from etcd", freeze_proxy, thaw_proxy, true,
         false},
        {"standby", "a standby's server is killed", kill_server, nothing, false, false},
    };
    return kKinds;
}

Strikes::Strikes(Cluster& cluster, const Watch& watch, std::uint64_t seed,
                 const std::vector<std::string>& kinds, std::function<std::string()> also_missing)
    : cluster_(cluster),
      watch_(watch),
      also_missing_(std::move(also_missing)),
      random_(seed, 0x57e1),
      begin_(now()) {
    for (const Kind& kind : Strikes::kinds())
        if (kinds.empty() || std::find(kinds.begin(), kinds.end(), kind.name) != kinds.end())
            wanted_.push_back(&kind);
    for (const std::string& name : kinds)
        if (std::none_of(wanted_.begin(), wanted_.end(),
                         [&](const Kind* kind) { return name == kind->name; }))
            throw std::invalid_argument("no fault '" + name + "'");
}

void Strikes::go_on_until(Micros end) {
    do strike_once();
    while (now() < end && failures_.empty());
}

void Strikes::strike_once() {
    rest(kQuiet);
    strike(next());
}

// Each kind comes once before any comes again.
const Strikes::Kind& Strikes::next() {
    if (round_.empty()) round_ = wanted_;
    const auto at = random_.between(0, static_cast<std::int64_t>(round_.size()) - 1);
    const Kind* const kind = round_[static_cast<std::size_t>(at)];
    round_.erase(round_.begin() + at);
    return *kind;
}

Node& Strikes::victim_of(const Kind& kind) {
    Node& primary = cluster_.primary();
    if (kind.of_primary) return primary;
    std::vector<Node*> standbys;
    for (const auto& node : cluster_.nodes())
        if (node.get() != &primary) standbys.push_back(node.get());
    return *random_.pick(standbys);
}

void Strikes::strike(const Kind& kind) {
    const int before = watch_.takeovers().rbegin()->first;
    Node& victim = victim_of(kind);
    Strike strike;
    strike.kind = kind.name;
    strike.victim = victim.name;
    strike.from = now();
    say(std::string(kind.about) + ": " + victim.name);
    kind.harm(cluster_, victim);
    if (kind.of_primary && await_takeover(&strike, before)) {
        say(strike.successor + " has taken over after " + seconds(strike.taken_over - strike.from));
        rest(kind.leaves_two_primaries ? kWithTwo : kQuiet);
    }
    kind.undo(cluster_, victim);
    strike.undone = now();
    await_whole(&strike);
    done_.push_back(strike);
}

// If the killed server comes back in its old role, no other needs to take over.
bool Strikes::await_takeover(Strike* strike, int before) {
    const Micros deadline = now() + kForTakeover;
    for (; now() < deadline; rest(20 * kMillisecond)) {
        const auto takeovers = watch_.takeovers();
        const auto next = takeovers.upper_bound(before);
        if (next == takeovers.end()) continue;
        strike->successor = next->second.node;
        strike->taken_over = next->second.since;
        return true;
    }
    failures_.push_back(
        {17, "nobody took over from " + strike->victim + " (" + strike->kind + ")"});
    return false;
}

void Strikes::await_whole(Strike* strike) {
    const int rewound = cluster_.rewinds();
    const Micros deadline = now() + kForWhole;
    std::string complaint;
    // A server killed a moment ago may still be counted.
    do {
        rest(250 * kMillisecond);
        complaint = cluster_.complaint();
        if (complaint.empty() && also_missing_) complaint = also_missing_();
    } while (!complaint.empty() && now() < deadline);
    strike->whole = now();
    if (!complaint.empty())
        failures_.push_back({17, "not whole again after " + strike->kind + " of " + strike->victim +
                                     ": " + complaint});
    else
        say(strike->victim + " streams again after " + seconds(strike->whole - strike->undone) +
            (cluster_.rewinds() > rewound ? ", rewound" : ""));
}

std::map<std::string, int> Strikes::fired() const {
    std::map<std::string, int> counts;
    for (const Kind* kind : wanted_) counts[kind->name] = 0;
    for (const Strike& strike : done_) ++counts[strike.kind];
    return counts;
}

void Strikes::say(const std::string& what) const {
    std::printf("  %4d s  %s\n", static_cast<int>((now() - begin_) / kSecond), what.c_str());
    (void)std::fflush(stdout);
}

}  // namespace idem::chaos
