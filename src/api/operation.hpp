// The operation of idem_execute: a function of one jsonb that returns jsonb or idem_response.
#pragma once

#include "claim/holder.hpp"

namespace idem::api {

struct Operation {
    Oid function;
    bool returns_response;  // else jsonb
    bool strict;
    text* name;  // with its schema, the same in every session and after a restore
};

// Checks the signature (42P13) and that the caller may execute it (42501).
Operation operation_argument(FunctionCallInfo fcinfo, int arg);

// Calls it as the current user and takes its result apart. It sees what had committed when it was
// granted, also where it is declared STABLE and the statement around it began before.
void run_operation(const Operation& operation, Jsonb* request, claim::Response* response);

}  // namespace idem::api
