// Who takes part where first executions are compared, and under which names.
#pragma once

#include "contenders/contenders.hpp"

namespace idem::bench {

constexpr char kBare[] = "bare transaction";
constexpr char kUniqueKey[] = "unique key";
constexpr char kKeysTable[] = "keys table";
constexpr char kKeysTablePipelined[] = "keys table, pipelined";
constexpr char kThreeCommits[] = "keys table, three commits";
constexpr char kRedis[] = "Redis";
constexpr char kRedisOverlapped[] = "Redis, overlapped";
constexpr char kOurs[] = "ours";
constexpr char kOursPipelined[] = "ours, pipelined";
constexpr char kOursLeased[] = "ours, leased";
constexpr char kOnce[] = "idem_once";
constexpr char kExecute[] = "idem_execute";

std::vector<Contender> first_executions();

// Nothing is left of the contender before: no rows, and no pages that a checkpoint has to write.
void begin_afresh(Connection& admin);

}  // namespace idem::bench
