// What a procedure has that does something to many records: it chooses them once, and settles them
// one by one, each by the function that does it for one key, on the node that has it. After each
// batch everything is committed, so a cancel leaves whole batches, and who calls again goes on.
#pragma once

#include "pg/pg.hpp"

namespace idem::api {

// What such a function returns.
inline constexpr const char* kDone = "done";
inline constexpr const char* kRunning = "running";  // a transaction or a lease has the key
inline constexpr const char* kPassed = "passed";    // there is nothing to do any more

// An error (25001) unless the call may commit. `procedure` is its name, with parentheses.
void require_own_transactions(FunctionCallInfo fcinfo, const char* procedure);

// From 1 to 10000.
int batch_size(FunctionCallInfo fcinfo, int arg);

// The function that is called for each record, with its arguments.
struct Step {
    FunctionCallInfo call;
};

// A function in the schema of the procedure. Its arguments are null.
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

// What is told of a record that is being executed.
struct Told {
    Datum scope;
    Datum principal;
    Datum key;
};

inline constexpr int kMostToldKeys = 100;

// What became of the records.
struct Tally {
    const char* procedure;
    std::int64_t total;
    std::int64_t seen;
    std::int64_t done;
    std::int64_t running;
    std::int64_t told_at;  // by the monotonic clock
    Told keys[kMostToldKeys];
};

// Calls the step for each record that meets the condition, of all nodes; `place` puts scope,
// principal, key and claimed_at of one into its arguments. Commits after each batch, and at the
// end. In a connection to SPI that may commit; what is returned lives in its memory.
using Place = void (*)(const Step& step, const Datum* row);
Tally* settle_all(const char* procedure, const char* condition, const Parameters& parameters,
                  const Step& step, Place place, int batch);

// SPI for a procedure that commits, and its commit.
void connect_to_commit();
void commit_batch();

// The keys that were told, as an array of objects.
Jsonb* told_keys(const Tally& tally);

// A row of the INOUT arguments, in the memory of whoever calls the procedure; ends the connection.
Datum end_with_row(FunctionCallInfo fcinfo, const Datum* values);

}  // namespace idem::api
