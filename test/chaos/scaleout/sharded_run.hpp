// A run whose records are in shards on several nodes, all of which are asked.
#pragma once

#include "run/trial.hpp"

namespace idem::chaos {

class ShardedRun : public Trial {
  protected:
    explicit ShardedRun(const Options& options);

    // The work's tables and the records, on the coordinator of a cluster that knows its nodes.
    void distribute();
    // Invariants 18 to 20 of a node; `name` for the report.
    void expect_rest(const std::string& name, const Server& node);
    void print_more() const override;
};

}  // namespace idem::chaos
