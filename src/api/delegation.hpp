// Keeps Citus's planner from mistakes with calls of ours. Citus delegates a statement that is
// nothing but a call of a distributed function to the node with the records of its principal. There
// are two faults in that, which other functions have too:
//
// - It looks at the statement after the server's planner has simplified it. A call beside a CTE,
//   subquery or VALUES of one row has become a lone call by then, and the backend crashes. So has
//   one of a function in SQL that does nothing but call ours. A lone call beside a scalar subquery
//   fails.
// - It does not ask whether the transaction may write.
#pragma once

namespace idem::api {

// Call it when the library is loaded. It does nothing where Citus is not: there statements are
// planned as without this extension.
void watch_delegation();

}  // namespace idem::api
