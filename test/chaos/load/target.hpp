// Where the server is. A failover moves it. If a cluster does that itself, clients know all of its
// servers and look for the one that takes writes, or ask any of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace idem::chaos {

class Target {
  public:
    // Connection strings without an application name; `pooled` may be empty.
    void set(const std::string& direct, const std::string& pooled) {
        const std::lock_guard<std::mutex> guard(mutex_);
        direct_ = direct;
        pooled_ = pooled;
    }
    // Sockets' folders and ports, and what follows in the connection string.
    void set_cluster(const std::vector<std::pair<std::string, int>>& servers,
                     const std::string& rest) {
        const std::lock_guard<std::mutex> guard(mutex_);
        servers_ = servers;
        direct_ = rest + " target_session_attrs=read-write";
    }
    // For a cluster whose nodes may all be asked: `asked` now, and `all` nodes on which part of a
    // call may still be running.
    void set_nodes(const std::vector<std::string>& asked, const std::vector<std::string>& all) {
        const std::lock_guard<std::mutex> guard(mutex_);
        direct_ = asked.front();
        asked_ = asked;
        all_ = all;
    }
    std::string node(std::size_t number) const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return asked_[number % asked_.size()];
    }
    bool is_asked(const std::string& node) const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return std::find(asked_.begin(), asked_.end(), node) != asked_.end();
    }
    std::vector<std::string> all_nodes() const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return all_;
    }
    std::string direct() const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return servers_.empty() ? direct_ : hosts() + direct_;
    }
    std::string pooled() const {
        const std::string elsewhere = direct();
        const std::lock_guard<std::mutex> guard(mutex_);
        return pooled_.empty() ? elsewhere : pooled_;
    }

  private:
    // Begins with another server each time: a stuck one must not be every client's first choice.
    std::string hosts() const {
        std::string hosts;
        std::string ports;
        const std::size_t first = turn_++;
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            const auto& [host, port] = servers_[(first + i) % servers_.size()];
            hosts += (i == 0 ? "" : ",") + host;
            ports += (i == 0 ? "" : ",") + std::to_string(port);
        }
        return "host=" + hosts + " port=" + ports + " ";
    }

    mutable std::mutex mutex_;
    std::string direct_;
    std::string pooled_;
    std::vector<std::pair<std::string, int>> servers_;
    std::vector<std::string> asked_;
    std::vector<std::string> all_;
    mutable std::atomic<std::size_t> turn_{0};
};

}  // namespace idem::chaos
