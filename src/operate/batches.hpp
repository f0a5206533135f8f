// The common part of procedures for many records. A procedure chooses the records once. It settles
// each one by the function for a single key, on the node that has it. It commits after each batch:
// a cancel leaves whole batches, and a repeated call continues.
#pragma once

#include "operate/tally.hpp"

namespace idem::operate {

// An error (25001) unless the call may commit. `procedure` is its name, with parentheses.
void require_own_transactions(FunctionCallInfo fcinfo, const char* procedure);

inline constexpr std::int32_t kLargestBatch = 10000;

// From 1 to the largest batch size.
int batch_size(FunctionCallInfo fcinfo, int arg);

// The function called for each record, with its arguments.
struct Step {
    FunctionCallInfo call;
};

// The extension's function of this name, in the procedure's schema. All arguments begin as null.
Step step_of(FunctionCallInfo fcinfo, const char* name);
void set_argument(const Step& step, int arg, Datum value);
// Passes an argument of the procedure on unchanged.
void pass_argument(const Step& step, int arg, FunctionCallInfo fcinfo, int from);

// Parameters of an SQL condition.
struct Parameters {
    ParamListInfo list;
    int count;
};

Parameters room_for(int count);
void add_parameter(Parameters* parameters, Oid type, NullableDatum value);

// Calls the step for each record that meets the condition, on all nodes, and counts the results.
// `place` copies scope, principal, key and claimed_at of a row into the step's arguments. Commits
// after each batch and at the end. Needs an SPI connection that may commit.
using Place = void (*)(const Step& step, const Datum* row);
void settle_all(const char* condition, const Parameters& parameters, const Step& step, Place place,
                int batch, Tally* tally);

// SPI for a procedure that commits, and its commit.
void connect_to_commit();
void commit_batch();

// A row of the INOUT arguments, in the memory of the procedure's caller; ends the connection.
Datum end_with_row(FunctionCallInfo fcinfo, const Datum* values);

}  // namespace idem::operate
