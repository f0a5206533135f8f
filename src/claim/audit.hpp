// A decision of an operator about records, policies and rights: kept in idempotency.audit, and said
// in the log.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// Everything but the action may be absent.
struct Audited {
    std::string_view action;
    const store::Identity* id = nullptr;  // of the record
    const text* scope = nullptr;          // without a record: the scope, or a policy's pattern
    const char* role = nullptr;           // that was granted to, or revoked from
    Jsonb* before = nullptr;              // an object; nullptr: there was nothing
    Jsonb* after = nullptr;
    const text* reason = nullptr;
    bool anonymous = false;  // the principal is to be forgotten: neither it nor the key is named
};

// In the transaction that decides, so that a decision that is rolled back leaves no row; the line
// in the log, as every other one, is of the moment. Errors: those of a row that can't be written,
// by which the decision fails as well.
void audit(const Audited& what);

// A record as the audit has it.
Jsonb* state_of(const store::Record& record);

}  // namespace idem::claim
