#include "check/linearize.hpp"

#include <algorithm>
#include <sstream>

namespace idem::chaos {
namespace {

// With more orders than this, the search continues with the first of them and can no longer prove
// that there is none. Sound histories mostly need ten, and needed up to 4,000 where a busy machine
// had stretched an idem_forget_principal over 180 ms.
constexpr std::size_t kMost = 5000;
constexpr int kCuts = 10;  // returns before which that may happen, until the search gives up

struct Order {
    State state;
    std::set<int> done;   // of the steps under way: those that have had their effect,
    std::set<int> spent;  // and of those that may be skipped
};

// ---- orders that allow as much as others, or more ----

bool is_for_ever(const Range& range) {
    return range.lo == kNever;
}

// All of a record except its times.
void add_words(const Record& record, const std::vector<Range>& ranges, std::ostream* words) {
    *words << static_cast<int>(record.kind) << ' ' << record.token << ' ' << record.attempt << ' '
           << record.fingerprint << ' ' << record.status_code << ' ' << record.body << ' '
           << record.point << ' ' << record.by_operator << ' ' << record.doubted << record.given_up
           << record.silent << ' ' << record.lease << ' ' << record.gone_from << ' ';
    for (const Range& range : ranges) *words << is_for_ever(range);
}

std::vector<Range> ranges_of(const Record& record) {
    return {record.ttl,      record.retention,   record.claimed,     record.expires,
            record.retained, record.lease_until, record.next_attempt};
}

// What a later call can distinguish in an order: its words, and apart from them the ranges of its
// times.
struct Sketch {
    std::string words;
    std::vector<Range> ranges;

    explicit Sketch(const Order& order) {
        std::ostringstream text;
        add(order.state.committed, &text);
        text << '|' << order.state.owner;
        for (const Frame& frame : order.state.frames) {
            text << '|' << frame.depth << frame.open << frame.written << frame.ended
                 << frame.released << frame.erased;
            add(frame.record, &text);
            add(frame.before, &text);
        }
        for (const int step : order.done) text << ',' << step;
        words = text.str();
    }

  private:
    void add(const Record& record, std::ostream* text) {
        const std::vector<Range> more = ranges_of(record);
        add_words(record, more, text);
        ranges.insert(ranges.end(), more.begin(), more.end());
    }
};

bool holds(const Range& wide, const Range& narrow) {
    return wide.lo <= narrow.lo && wide.hi >= narrow.hi;
}

// Orders without the redundant ones. Another order makes one redundant if it has the same result,
// its times may be any of theirs, and it has spent no call that they have not.
class Frontier {
  public:
    // Whether the order is news.
    bool add(const Order& order) {
        const Sketch sketch(order);
        std::vector<std::size_t>& alike = alike_[sketch.words];
        for (const std::size_t other : alike)
            if (allows_more(entries_[other], sketch.ranges, order.spent)) return false;
        Entry entry{sketch.ranges, order, false};
        for (const std::size_t other : alike)
            entries_[other].needless |=
                allows_more(entry, entries_[other].ranges, entries_[other].order.spent);
        alike.push_back(entries_.size());
        entries_.push_back(std::move(entry));
        return true;
    }

    std::vector<Order> take() {
        std::vector<Order> orders;
        for (Entry& entry : entries_)
            if (!entry.needless) orders.push_back(std::move(entry.order));
        return orders;
    }

  private:
    struct Entry {
        std::vector<Range> ranges;
        Order order;
        bool needless;
    };

    static bool allows_more(const Entry& entry, const std::vector<Range>& ranges,
                            const std::set<int>& spent) {
        return std::equal(entry.ranges.begin(), entry.ranges.end(), ranges.begin(), holds) &&
               std::includes(spent.begin(), spent.end(), entry.order.spent.begin(),
                             entry.order.spent.end());
    }

    std::vector<Entry> entries_;
    std::map<std::string, std::vector<std::size_t>> alike_;
};

// ---- unanswered calls ----

// The request of a call, without the caller and the time.
std::string shape_of(Call call) {
    const Call unknown;
    call.session = unknown.session;
    call.connection = unknown.connection;
    call.timeline = unknown.timeline;
    call.node = unknown.node;
    call.transaction = unknown.transaction;
    call.invoked = unknown.invoked;
    call.returned = unknown.returned;
    call.asked.secret = unknown.asked.secret;
    return describe(call);
}

// Of two calls of one shape: whether the first can have done everything that the second could, and
// the second can stand in for the first from then on.
bool serves_as_well(const Step& first, const Step& second) {
    const bool same_hold = (first.gone_from == kNever) == (second.gone_from == kNever);
    return same_hold && first.gone_from <= second.gone_from && first.invoked <= second.invoked &&
           first.returned <= second.returned;
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
        for (const auto& [moment, is_return, skipped, index] : events()) {
            if (!is_return) {
                invoke(index);
            } else if (!complete(index) || (skipped && moment == kNever)) {
                break;  // Now all that is left may be skipped, and what it can have done is known.
            }
        }
        verdict_.cut_off = cuts_ > 0;
        return verdict_;
    }

  private:
    using Event = std::tuple<Micros, bool, bool, int>;

    std::vector<Event> events() const {
        std::vector<Event> all;
        for (int i = 0; i < static_cast<int>(timeline_.steps.size()); ++i) {
            all.emplace_back(step(i).invoked, false, false, i);
            all.emplace_back(step(i).returned, true, step(i).may_be_skipped, i);
        }
        std::sort(all.begin(), all.end());
        return all;
    }

    const Step& step(int index) const { return timeline_.steps[static_cast<std::size_t>(index)]; }

    void invoke(int index) {
        if (step(index).may_be_skipped)
            unanswered_[shape_of(*step(index).call)].push_back(index);
        else
            under_way_.insert(index);
        for (Order& order : orders_) settle(order);
    }

    void forget(int index) {
        under_way_.erase(index);
        if (!step(index).may_be_skipped) return;
        std::vector<int>& alike = unanswered_[shape_of(*step(index).call)];
        alike.erase(std::remove(alike.begin(), alike.end(), index), alike.end());
    }

    // A step that does not change the key comes as soon as it fits: that forbids nothing later.
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
        bool cut = false;
        std::vector<Order> orders = explore(index, &cut);
        if (cut) ++cuts_;
        if (orders.empty() || cuts_ > kCuts) return fail(index);
        orders_ = std::move(orders);
        for (Order& order : orders_) {
            order.done.erase(index);
            order.spent.erase(index);
        }
        forget(index);
        return true;
    }

    // Breadth first: orders that take the fewest calls before the step come first.
    std::vector<Order> explore(int target, bool* cut) {
        Frontier tried;
        Frontier found;
        std::vector<Order> level;
        for (const Order& order : orders_) consider(order, &tried, &level);
        while (!level.empty()) {
            std::vector<Order> next;
            for (const Order& order : level) {
                if (next.size() > kMost) break;
                const bool done = order.done.count(target) + order.spent.count(target) > 0;
                if (done || step(target).may_be_skipped) (void)found.add(order);
                if (done) continue;
                for (const Order& longer : continued(order, target))
                    consider(longer, &tried, &next);
            }
            shorten(&next, cut);
            level = std::move(next);
        }
        std::vector<Order> orders = found.take();
        shorten(&orders, cut);
        return orders;
    }

    void consider(Order order, Frontier* tried, std::vector<Order>* level) const {
        settle(order);
        if (tried->add(order)) level->push_back(std::move(order));
    }

    static void shorten(std::vector<Order>* orders, bool* cut) {
        if (orders->size() <= kMost) return;
        orders->resize(kMost);
        *cut = true;
    }

    // The orders with one step more.
    std::vector<Order> continued(const Order& order, int target) {
        std::vector<Order> next;
        // Sweepers come between two calls. Their decision has to come before a call that shows it,
        // and just before one is enough.
        const auto swept = given_up(order.state, step(target).returned, rules_);
        for (const int index : takeable(order)) {
            take(order, order.state, index, target, &next);
            if (swept) take(order, *swept, index, target, &next);
        }
        return next;
    }

    // Unanswered calls of one shape take turns: of two that could have done the same, the one that
    // was sent first.
    std::vector<int> takeable(const Order& order) const {
        std::vector<int> result;
        for (const int index : under_way_)
            if (is_next(order, index)) result.push_back(index);
        for (const auto& [shape, alike] : unanswered_) {
            const auto first = static_cast<std::ptrdiff_t>(result.size());
            for (const int index : alike) {
                if (order.spent.count(index) > 0) continue;
                if (std::none_of(result.begin() + first, result.end(), [&](int other) {
                        return serves_as_well(step(other), step(index));
                    }))
                    result.push_back(index);
            }
        }
        return result;
    }

    // The step, in a state that the order has led to. It comes before the target, and so before the
    // target has returned, even if the step was never answered.
    void take(const Order& order, const State& before, int index, int target,
              std::vector<Order>* next) {
        Step taken = step(index);
        taken.returned = std::min(taken.returned, step(target).returned);
        for (State& state : after(before, taken, rules_)) {
            next->push_back({std::move(state), order.done, order.spent});
            (taken.may_be_skipped ? next->back().spent : next->back().done).insert(index);
            note(next->back().state.committed);
        }
    }

    void note(const Record& record) {
        Order order;
        order.state.committed = record;
        if (noted_.add(order)) verdict_.passed.push_back(record);
    }

    bool fail(int index) {
        verdict_.fit = cuts_ > 0 ? Fit::Undecided : Fit::Illegal;
        verdict_.invariant = invariant_of(index);
        verdict_.explanation =
            (cuts_ > 0 ? "too many orders to try all before " : "no order explains ") +
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

    // The rule that the step breaks most plainly, for the reader: the search itself has only one
    // rule.
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
        if (call.asked.token != 0) return 7;  // of no claim any more, or it has ended nothing
        return call.function == Function::Get ? 8 : 13;
    }

    static int granted_against(Kind kind) {
        if (kind == Kind::Completed || kind == Kind::Failed) return 4;
        return kind == Kind::InProgress || kind == Kind::Unknown ? 15 : 16;
    }

    const Timeline& timeline_;
    const Rules& rules_;
    std::vector<Order> orders_;
    std::set<int> under_way_;                             // but for those that may be skipped:
    std::map<std::string, std::vector<int>> unanswered_;  // by shape, as they were sent
    Frontier noted_;
    int cuts_ = 0;
    Verdict verdict_;
};

}  // namespace

Verdict linearize(const Timeline& timeline, const Rules& rules,
                  const std::vector<Record>& initial) {
    return Search(timeline, rules, initial).run();
}

}  // namespace idem::chaos
