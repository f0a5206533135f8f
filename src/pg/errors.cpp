#include "pg/errors.hpp"

namespace idem::pg {

void raise_null(const char* what) {
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what),
                    errhint("Pass a value.")));
    pg_unreachable();
}

void raise_word(const char* what, const char* given, const char* allowed) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: \"%s\"", what, given), errhint("Use one of %s.", allowed)));
    pg_unreachable();
}

void raise_number(const char* what, std::int64_t given, std::int64_t least, std::int64_t most) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("invalid %s: %lld", what, static_cast<long long>(given)),
                    errhint("Use a number from %lld to %lld.", static_cast<long long>(least),
                            static_cast<long long>(most))));
    pg_unreachable();
}

void raise_no_claim() {
    ereport(ERROR, (errcode(kNoClaim), errmsg("no claim on this key"),
                    errdetail("There is no record of this scope, principal and key."),
                    errhint("Call idem_begin first, with the same scope and principal.")));
    pg_unreachable();
}

void raise_claim_overtaken() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not record the result because of a concurrent claim"),
                    errdetail("Another transaction has written the record of this key."),
                    errhint("Roll back and retry the transaction.")));
    pg_unreachable();
}

void raise_own_claim_open() {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("this transaction has begun this key and not ended it"),
                    errhint("End the claim with idem_complete, idem_fail or idem_release.")));
    pg_unreachable();
}

void require_no_parallel_mode(const char* function) {
    PreventCommandIfParallelMode(function);
}

void require_writable(const char* function) {
    require_no_parallel_mode(function);
    PreventCommandIfReadOnly(function);
    PreventCommandDuringRecovery(function);
}

}  // namespace idem::pg
