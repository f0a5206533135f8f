#include "scaleout/sharded_run.hpp"

#include "run/database.hpp"
#include "run/tables.hpp"
#include "scaleout/citus.hpp"

namespace idem::chaos {

ShardedRun::ShardedRun(const Options& options) : Trial(options) {
    mix_.harm = !options.faults.empty();
    mix_.distributed = true;
    mix_.tenants = 8;
    // Excludes what Citus does not promise or support: users' PREPARE TRANSACTION, and
    // SERIALIZABLE across nodes and moves.
    mix_.prepare = false;
    mix_.sums = false;
    mix_.hold = false;
    mix_.decided_every = 0;
    habits_.any_node = true;
}

void ShardedRun::distribute() {
    set_up(server(), mix_.body_limit);
    for (const std::string& sql : distributed_work()) Citus::ask(server(), sql);
    // A lease counts from PREPARE, and others see the row when all nodes have committed.
    history_.early_rows = true;
}

void ShardedRun::expect_rest(const std::string& name, const Server& node) {
    for (const Violation& violation : check_node(node))
        at_rest_.push_back({violation.invariant, name + ": " + violation.what});
}

void ShardedRun::print_more() const {
    print_nodes(history_);
}

}  // namespace idem::chaos
