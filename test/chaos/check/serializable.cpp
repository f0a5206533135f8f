#include "check/serializable.hpp"

#include <algorithm>
#include <queue>

namespace idem::chaos {
namespace {

using Node = std::int64_t;  // a transaction
using Reason = std::string;

class Graph {
  public:
    void add(Node from, Node to, const char* kind, const std::string& object) {
        if (from == to) return;
        edges_[from].emplace(to, Reason(kind) + " of " + object);
        edges_[to];
    }

    // A shortest cycle through each part of the graph that has one.
    std::vector<std::string> cycles() {
        std::vector<std::string> found;
        for (prune(); !edges_.empty(); prune()) {
            const std::vector<Node> cycle = shortest();
            found.push_back(describe(cycle));
            for (const Node node : cycle) edges_.erase(node);
        }
        return found;
    }

  private:
    // Removes nodes that are on no path from a cycle to a cycle.
    void prune() {
        for (std::size_t before = 0; before != edges_.size();) {
            before = edges_.size();
            std::set<Node> entered;
            for (auto& [node, next] : edges_) {
                for (auto to = next.begin(); to != next.end();)
                    to = edges_.count(to->first) > 0 ? std::next(to) : next.erase(to);
                for (const auto& [to, reason] : next) entered.insert(to);
            }
            for (auto node = edges_.begin(); node != edges_.end();) {
                const bool ends = node->second.empty() || entered.count(node->first) == 0;
                node = ends ? edges_.erase(node) : std::next(node);
            }
        }
    }

    std::vector<Node> shortest() const {
        std::vector<Node> best;
        for (const auto& [node, next] : edges_) {
            std::vector<Node> cycle = around(node);
            if (!cycle.empty() && (best.empty() || cycle.size() < best.size())) best = cycle;
            if (best.size() == 2) break;
        }
        return best;
    }

    // From the node to itself, breadth first; empty if there is no path.
    std::vector<Node> around(Node start) const {
        std::map<Node, Node> reached_from;
        std::queue<Node> next({start});
        for (; !next.empty() && reached_from.count(start) == 0; next.pop())
            for (const auto& [to, reason] : edges_.at(next.front()))
                if (reached_from.emplace(to, next.front()).second) next.push(to);
        std::vector<Node> cycle;
        if (reached_from.count(start) == 0) return cycle;
        for (Node node = start; cycle.empty() || node != start; node = reached_from.at(node))
            cycle.push_back(node);
        std::reverse(cycle.begin() + 1, cycle.end());
        return cycle;
    }

    std::string describe(const std::vector<Node>& cycle) const {
        std::string text = "transactions depend on each other in a circle: ";
        for (std::size_t i = 0; i < cycle.size(); ++i) {
            const Node to = cycle[(i + 1) % cycle.size()];
            text += std::to_string(cycle[i]) + " -(" + edges_.at(cycle[i]).at(to) + ")-> ";
        }
        return text + std::to_string(cycle[0]);
    }

    std::map<Node, std::map<Node, Reason>> edges_;
};

class Dependencies {
  public:
    explicit Dependencies(const History& history) {
        for (const Read& read : history.reads)
            if (read.transaction == 0) last_.emplace(read.object, &read);
        for (const Read& read : history.reads)
            if (read.transaction != 0) add(read);
        for (const auto& [object, read] : last_)
            if (read->ordered) add_versions(*read);
    }

    std::vector<Violation> run() {
        for (const std::string& cycle : graph_.cycles()) found_.push_back({22, cycle});
        return found_;
    }

  private:
    void add(const Read& read) {
        const auto last = last_.find(read.object);
        static const Read kEmpty;
        const Read& all = last == last_.end() ? kEmpty : *last->second;
        if (!read.ordered) return add_set(read, all);
        const bool prefix =
            read.writers.size() <= all.writers.size() &&
            std::equal(read.writers.begin(), read.writers.end(), all.writers.begin());
        if (!prefix) return complain("a version that was never committed", read);
        const std::size_t seen = read.writers.size();
        if (seen > 0) graph_.add(all.writers[seen - 1], read.transaction, "wr", read.object);
        if (seen < all.writers.size())
            graph_.add(read.transaction, all.writers[seen], "rw", read.object);
    }

    void add_set(const Read& read, const Read& all) {
        const std::set<std::int64_t> seen(read.writers.begin(), read.writers.end());
        const std::set<std::int64_t> there(all.writers.begin(), all.writers.end());
        for (const std::int64_t writer : seen)
            if (there.count(writer) == 0) return complain("a row that was never committed", read);
        for (const std::int64_t writer : there) {
            if (seen.count(writer) > 0)
                graph_.add(writer, read.transaction, "wr", read.object);
            else
                graph_.add(read.transaction, writer, "rw", read.object);
        }
    }

    void add_versions(const Read& last) {
        for (std::size_t i = 1; i < last.writers.size(); ++i)
            graph_.add(last.writers[i - 1], last.writers[i], "ww", last.object);
    }

    void complain(const std::string& what, const Read& read) {
        found_.push_back({22, "transaction " + std::to_string(read.transaction) + " has read " +
                                  what + " of " + read.object});
    }

    std::map<std::string, const Read*> last_;
    Graph graph_;
    std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> check_serializable(const History& history) {
    return Dependencies(history).run();
}

}  // namespace idem::chaos
