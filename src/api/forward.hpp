// Calls for records that another node has. Citus delegates a statement that is nothing but such a
// call with constants; any other one, in a CTE, in an expression of PL/pgSQL, with a principal that
// comes from a table, it runs where it is asked. There the call is made again as a statement that
// Citus does delegate, in the same transaction. So every form of a call is decided by the node that
// has the records, whose lock of the key is one for all.
#pragma once

#include "pg/pg.hpp"

namespace idem::api {

// Whether the records of the call's argument `principal` are on another node. An error (40001) if
// another node has sent the call here for them.
bool belongs_elsewhere(FunctionCallInfo fcinfo);

// Makes the call there. An error (0A000) if Citus does not delegate it.
Datum forward(FunctionCallInfo fcinfo);

template <Datum (*body)(FunctionCallInfo)>
Datum at_its_records(FunctionCallInfo fcinfo) {
    return belongs_elsewhere(fcinfo) ? forward(fcinfo) : body(fcinfo);
}

}  // namespace idem::api
