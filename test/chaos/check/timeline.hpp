// A history, key by key: the steps that concern one key, transaction by transaction.
#pragma once

#include "check/model.hpp"

namespace idem::chaos {

struct Timeline {
    Key key;
    std::vector<Step> steps;       // by invocation
    std::vector<int> predecessor;  // of each step: the one before it in its transaction, or -1
};

// The transactions of a history, and what the effects tell of those with an unknown end.
class Transactions {
  public:
    explicit Transactions(const History& history);

    enum class Fate { Committed, RolledBack, Unknown };
    Fate fate(std::int64_t transaction) const;
    // Whether a rollback to a savepoint has undone this call; it holds for calls that were not.
    bool survives(const Call& call) const;
    // The earliest moment at which the transaction may have ended. If its end is unknown, its
    // backend may have been lost before COMMIT was sent.
    Micros earliest_end(std::int64_t transaction) const;

  private:
    std::map<std::int64_t, Fate> fates_;
    std::map<std::int64_t, Micros> earliest_ends_;
    std::set<const Call*> undone_;
};

// Whether a release frees the key at once. If its transaction has written anything, the key stays
// taken until the transaction ends.
class Releases {
  public:
    explicit Releases(const History& history, const Transactions& transactions);
    bool frees(const Call& release) const { return freeing_.count(&release) > 0; }

  private:
    std::set<const Call*> freeing_;
};

std::vector<Timeline> timelines(const History& history);

}  // namespace idem::chaos
