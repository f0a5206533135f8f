// Forwards calls for records of another node. Citus delegates a statement only if it is nothing but
// such a call with constants. It runs any other statement where it is asked: in a CTE, in an
// expression of PL/pgSQL, or with a principal that comes from a table. There the call is made
// again, in the same transaction, as a statement that Citus delegates. So the node with the records
// decides every form of a call, and its lock is the only lock of the key.
#pragma once

#include "pg/pg.hpp"

namespace idem::api {

// Whether the records of the call's argument `principal` are on another node. An error (40001) if
// another node has sent the call here for them.
bool belongs_elsewhere(FunctionCallInfo fcinfo);

// Makes the call on that node. An error (0A000) if Citus does not delegate it.
Datum forward(FunctionCallInfo fcinfo);

template <Datum (*body)(FunctionCallInfo)>
Datum at_its_records(FunctionCallInfo fcinfo) {
    return belongs_elsewhere(fcinfo) ? forward(fcinfo) : body(fcinfo);
}

}  // namespace idem::api
