#include "failover/watch.hpp"

#include "clock.hpp"

namespace idem::chaos {
namespace {

constexpr Micros kBetweenLooks = 10 * kMillisecond;

}  // namespace

Watch::Watch(const Cluster& cluster, std::function<void(const Node&)> tell)
    : cluster_(cluster), tell_(std::move(tell)) {
    for (const auto& node : cluster.nodes()) askers_.push_back(node->asker());
    look();
    thread_ = std::thread([this] {
        for (; !stop_; rest(kBetweenLooks)) look();
    });
}

Watch::~Watch() {
    stop_ = true;
    thread_.join();
}

void Watch::look() {
    for (std::size_t i = 0; i < askers_.size(); ++i) {
        const auto role = askers_[i].ask(kRoleQuery);
        const int timeline = role ? (*role)[0][0].as<int>() : 0;
        if (timeline == 0) continue;
        const Node& node = *cluster_.nodes()[i];
        const std::string& name = node.name;
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto [takeover, first] = takeovers_.emplace(timeline, Takeover{name, now()});
        if (first && tell_) tell_(node);
        if (!first && takeover->second.node != name)
            doubles_.push_back(name + " and " + takeover->second.node + " on timeline " +
                               std::to_string(timeline));
    }
}

std::map<int, Watch::Takeover> Watch::takeovers() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return takeovers_;
}

std::vector<std::string> Watch::doubles() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return doubles_;
}

}  // namespace idem::chaos
