// What a procedure has that does something to many records: it chooses them once, and settles them
// one by one, each by the function that does it for one key, on the node that has it. After each
// batch everything is committed, so a cancel leaves whole batches, and who calls again goes on.
#pragma once

#include "operate/tally.hpp"

namespace idem::operate {

// An error (25001) unless the call may commit. `procedure` is its name, with parentheses.
void require_own_transactions(FunctionCallInfo fcinfo, const char* procedure);

inline constexpr std::int32_t kLargestBatch = 10000;

// From 1 to the largest.
int batch_size(FunctionCallInfo fcinfo, int arg);

// The function that is called for each record, with its arguments.
struct Step {
    FunctionCallInfo call;
};

// The extension's function of this name, in the schema of the procedure. Its arguments are null.
Step step_of(FunctionCallInfo fcinfo, const char* name);
void set_argument(const Step& step, int arg, Datum value);
// As the procedure was given it.
void pass_argument(const Step& step, int arg, FunctionCallInfo fcinfo, int from);

// Parameters of a condition.
struct Parameters {
    ParamListInfo list;
    int count;
};

Parameters room_for(int count);
void add_parameter(Parameters* parameters, Oid type, NullableDatum value);

// Calls the step for each record that meets the condition, of all nodes, and counts; `place` puts
// scope, principal, key and claimed_at of one into its arguments. Commits after each batch, and at
// the end. In a connection to SPI that may commit.
using Place = void (*)(const Step& step, const Datum* row);
void settle_all(const char* condition, const Parameters& parameters, const Step& step, Place place,
                int batch, Tally* tally);

// SPI for a procedure that commits, and its commit.
void connect_to_commit();
void commit_batch();

// A row of the INOUT arguments, in the memory of whoever calls the procedure; ends the connection.
Datum end_with_row(FunctionCallInfo fcinfo, const Datum* values);

}  // namespace idem::operate
