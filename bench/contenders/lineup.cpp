#include "contenders/lineup.hpp"

#include "contenders/business.hpp"

namespace idem::bench {

std::vector<Contender> first_executions() {
    return {
        {kBare, bare_transaction, ""},
        {kUniqueKey, unique_key, ""},
        {kKeysTable, keys_table, ""},
        {kKeysTablePipelined, keys_table_pipelined, ""},
        {kThreeCommits, keys_table_in_three_commits, ""},
        {kRedis, redis_keys, ""},
        {kRedisOverlapped, redis_keys_overlapped, ""},
        {kOurs, ours, ""},
        {kOursPipelined, ours_pipelined, ""},
        {kOursLeased, ours_leased, ""},
        {kOnce, ours_once, ""},
        {kExecute, ours_execute, ""},
    };
}

void begin_afresh(Connection& admin) {
    empty_tables(admin);
    admin.query("CHECKPOINT");
    Redis().forget_all();
}

}  // namespace idem::bench
