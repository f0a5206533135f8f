#include "check/linearize.hpp"

#include <algorithm>
#include <sstream>

namespace idem::chaos {
namespace {

constexpr std::size_t kTooMany =
    50000;  // orders of the same moment; a key never needed a hundredth

struct Order {
    State state;
    std::set<int> done;  // of the steps under way: those that have had their effect
};

std::string fingerprint_of(const Record& record) {
    std::ostringstream text;
    text << static_cast<int>(record.kind) << ' ' << record.token << ' ' << record.attempt << ' '
         << record.fingerprint << ' ' << record.status_code << ' ' << record.body << ' '
         << record.point << ' ' << record.by_operator << ' ' << record.doubted << record.given_up
         << ' ' << record.lease << ' ' << record.gone_from;
    for (const Range& range :
         {record.claimed, record.expires, record.retained, record.lease_until, record.next_attempt})
        text << ' ' << range.lo << '-' << range.hi;
    return text.str();
}

std::string fingerprint_of(const Order& order) {
    std::ostringstream text;
    text << fingerprint_of(order.state.committed) << '|' << order.state.owner;
    for (const Frame& frame : order.state.frames)
        text << '|' << frame.depth << frame.open << frame.written << frame.ended << frame.released
             << fingerprint_of(frame.record);
    for (const int step : order.done) text << ',' << step;
    return text.str();
}

class Search {
  public:
    Search(const Timeline& timeline, const Rules& rules, const std::vector<Record>& initial)
        : timeline_(timeline), rules_(rules) {
        for (const Record& record : initial) {
            Order order;
            order.state.committed = record;
            note(order.state.committed);
            orders_.push_back(order);
        }
    }

    Verdict run() {
        for (const auto& [moment, is_return, step] : events()) {
            if (!is_return) {
                invoke(step);
            } else if (!complete(step)) {
                break;
            }
        }
        return verdict_;
    }

  private:
    using Event = std::tuple<Micros, bool, int>;

    std::vector<Event> events() const {
        std::vector<Event> all;
        for (int i = 0; i < static_cast<int>(timeline_.steps.size()); ++i) {
            all.emplace_back(step(i).invoked, false, i);
            all.emplace_back(step(i).returned, true, i);
        }
        std::sort(all.begin(), all.end());
        return all;
    }

    const Step& step(int index) const { return timeline_.steps[static_cast<std::size_t>(index)]; }

    void invoke(int index) {
        under_way_.insert(index);
        for (Order& order : orders_) settle(order);
    }

    // What leaves the key alone had better come as soon as it fits: that forbids nothing later.
    void settle(Order& order) const {
        for (const int index : under_way_) {
            const Call& call = *step(index).call;
            const bool idle = only_looks(call) || ends_nothing(order, call);
            if (idle && is_next(order, index) && !after(order.state, step(index), rules_).empty())
                order.done.insert(index);
        }
    }

    // The end of a transaction that has not changed the key, and all whose calls are done.
    static bool ends_nothing(const Order& order, const Call& call) {
        return call.function > Function::Effect && order.state.owner != call.transaction;
    }

    bool is_next(const Order& order, int index) const {
        if (order.done.count(index) > 0) return false;
        const int before = timeline_.predecessor[static_cast<std::size_t>(index)];
        return before < 0 || under_way_.count(before) == 0 || order.done.count(before) > 0;
    }

    // Keeps the orders in which the step has had its effect by now.
    bool complete(int index) {
        std::vector<Order> found;
        seen_.clear();
        for (const Order& order : orders_) explore(order, index, &found);
        if (found.empty() || seen_.size() > kTooMany) return fail(index, found.empty());
        for (Order& order : found) order.done.erase(index);
        under_way_.erase(index);
        orders_ = unique(found);
        return true;
    }

    void explore(Order order, int target, std::vector<Order>* found) {
        settle(order);
        if (seen_.size() > kTooMany || !seen_.insert(fingerprint_of(order)).second) return;
        if (order.done.count(target) > 0) {
            found->push_back(order);
            return;
        }
        if (step(target).may_be_skipped) found->push_back(order);
        for (const int index : under_way_) {
            if (!is_next(order, index)) continue;
            take(order, order.state, index, target, found);
            // Sweepers come between two calls. What they do has to come before a call that shows
            // it, and nothing is missed if it comes just before one.
            if (auto swept = given_up(order.state, step(target).returned, rules_))
                take(order, *swept, index, target, found);
        }
    }

    // The step, in a state that the order has led to.
    void take(const Order& order, const State& before, int index, int target,
              std::vector<Order>* found) {
        for (State& state : after(before, step(index), rules_)) {
            Order next{std::move(state), order.done};
            next.done.insert(index);
            note(next.state.committed);
            explore(std::move(next), target, found);
        }
    }

    static std::vector<Order> unique(const std::vector<Order>& orders) {
        std::vector<Order> result;
        std::set<std::string> seen;
        for (const Order& order : orders)
            if (seen.insert(fingerprint_of(order)).second) result.push_back(order);
        return result;
    }

    void note(const Record& record) {
        if (noted_.insert(fingerprint_of(record)).second) verdict_.passed.push_back(record);
    }

    bool fail(int index, bool contradiction) {
        verdict_.legal = false;
        verdict_.invariant = contradiction ? invariant_of(index) : 13;
        verdict_.explanation = (contradiction ? "no order explains " : "too many orders before ") +
                               describe(*step(index).call) + possible();
        return false;
    }

    std::string possible() const {
        std::string text;
        for (std::size_t i = 0; i < std::min<std::size_t>(orders_.size(), 4); ++i) {
            text += "; the key was " + describe(orders_[i].state.committed);
            if (orders_[i].state.owner != 0)
                text += " and held by transaction " + std::to_string(orders_[i].state.owner);
        }
        return text;
    }

    // The rule that the step breaks most plainly, for the reader: the search itself knows one only.
    int invariant_of(int index) const {
        const Call& call = *step(index).call;
        const State& state = orders_.front().state;
        const Kind kind = state.committed.kind;
        const bool granted = call.answer.outcome == "execute" ||
                             (call.function == Function::Once && call.answer.yes);
        if (call.result == Result::Error) return 12;
        if (granted && state.owner != 0 && state.owner != call.transaction) return 5;
        if (granted) return granted_against(kind);
        if (call.answer.outcome == "replay") return kind == Kind::Absent ? 3 : 2;
        if (call.answer.outcome == "mismatch") return 9;
        if (call.asked.token != 0) return 7;  // nobody's any more, or it has ended nothing
        return call.function == Function::Get ? 8 : 13;
    }

    static int granted_against(Kind kind) {
        if (kind == Kind::Completed || kind == Kind::Failed) return 4;
        return kind == Kind::InProgress ? 15 : 16;
    }

    const Timeline& timeline_;
    const Rules& rules_;
    std::vector<Order> orders_;
    std::set<int> under_way_;
    std::set<std::string> seen_;
    std::set<std::string> noted_;
    Verdict verdict_;
};

}  // namespace

Verdict linearize(const Timeline& timeline, const Rules& rules,
                  const std::vector<Record>& initial) {
    return Search(timeline, rules, initial).run();
}

}  // namespace idem::chaos
