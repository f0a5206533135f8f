// The contenders: ways to make a request that arrives twice take effect once, and what they are
// measured against. Each prepares a client's statements and returns what that client does, over and
// over. All get prepared statements, the same business work, a new random key each time, and a
// response of kBodyBytes to remember; all check every answer. [a] [b + c] are two round trips.
#pragma once

#include <string>
#include <vector>

#include "harness/load.hpp"

namespace idem::bench {

struct Contender {
    std::string name;
    WorkFactory work;
    std::string database;  // '': that of the environment
};

// ---- first executions: business.cpp ----

// [BEGIN] [payment] [COMMIT]: no protection at all.
Work bare_transaction(Client& client);
// The same with a unique key in the business table: [BEGIN] [INSERT ... ON CONFLICT DO NOTHING]
// [COMMIT]. Keeps no response.
Work unique_key(Client& client);
// Its single statement, without BEGIN and COMMIT.
Work unique_key_statement(Client& client);

// ---- hand_written.cpp ----

// [BEGIN] [key ON CONFLICT DO NOTHING] [payment] [UPDATE response] [COMMIT]
Work keys_table(Client& client);
// [BEGIN + key] [payment] [UPDATE response + COMMIT]
Work keys_table_pipelined(Client& client);
// After B. Leach's "rocket rides": [key] [BEGIN] [payment] [UPDATE recovery point] [COMMIT]
// [UPDATE response], three commits.
Work keys_table_in_three_commits(Client& client);

// ---- redis_keys.cpp ----

// [SET NX] [BEGIN] [payment] [COMMIT] [SET response]
Work redis_keys(Client& client);
// [SET NX and, at the same time, BEGIN] [payment] [COMMIT] [SET response]
Work redis_keys_overlapped(Client& client);

// ---- ours.cpp ----

// [BEGIN] [idem_begin] [payment] [idem_complete] [COMMIT]
Work ours(Client& client);
// [BEGIN + idem_begin] [payment] [idem_complete + COMMIT]
Work ours_pipelined(Client& client);
// [idem_begin] [BEGIN] [payment] [idem_complete] [COMMIT], two commits.
Work ours_leased(Client& client);
// [idem_execute], of a function in PL/pgSQL.
Work ours_execute(Client& client);
// [BEGIN] [idem_once] [payment] [COMMIT]. Keeps no response.
Work ours_once(Client& client);
// [BEGIN + idem_once] [payment] [COMMIT]
Work ours_once_pipelined(Client& client);
// [INSERT INTO payment SELECT ... FROM idem_once]
Work ours_once_statement(Client& client);
// [BEGIN + idem_begin] [idem_complete] [COMMIT]: no business that would dilute what records cost.
WorkFactory ours_without_business(const std::string& ttl);

// ---- replays.cpp: the same few completed requests again and again ----

// [SELECT ... WHERE primary key] from a copy of the records.
WorkFactory select_by_key(const std::vector<std::string>& keys);
// [SET NX] [GET]
WorkFactory redis_replay(const std::vector<std::string>& keys);
// [SET NX + GET]
WorkFactory redis_replay_pipelined(const std::vector<std::string>& keys);
// [idem_begin]
WorkFactory ours_replay(const std::vector<std::string>& keys);

}  // namespace idem::bench
