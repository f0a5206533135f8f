// Watches all servers all the time, and knows since when each timeline has been a primary's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "check/history.hpp"
#include "failover/cluster.hpp"

namespace idem::chaos {

class Watch {
  public:
    // `tell` hears of each takeover, the first primary's included.
    explicit Watch(const Cluster& cluster, std::function<void(const Node&)> tell = {});
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    struct Takeover {
        std::string node;
        Micros since = 0;
    };
    // By timeline; there is one at least.
    std::map<int, Takeover> takeovers() const;
    // Nodes that were both primaries of one timeline, which must not happen.
    std::vector<std::string> doubles() const;

  private:
    void look();

    const Cluster& cluster_;
    const std::function<void(const Node&)> tell_;
    std::vector<Asker> askers_;
    mutable std::mutex mutex_;
    std::map<int, Takeover> takeovers_;
    std::vector<std::string> doubles_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace idem::chaos
