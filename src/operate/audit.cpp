// The chain of the audit: whether a decision was changed, removed or inserted past the functions.

#include "store/audit.hpp"

#include "api/arguments.hpp"
#include "pg/boundary.hpp"

namespace idem::operate {

using namespace api;

namespace {

// A number and 64 hexadecimal digits, as in the server log.
bool is_link(std::string_view link) {
    constexpr std::size_t kMostDigits = 18;
    constexpr std::size_t kHexDigits = 64;
    std::size_t colon = link.find(':');
    return colon != std::string_view::npos && colon > 0 && colon <= kMostDigits &&
           link.find_first_not_of("0123456789") == colon && link.size() == colon + 1 + kHexDigits &&
           link.find_first_not_of("0123456789abcdef", colon + 1) == std::string_view::npos;
}

// idem_audit_verify(link)
Datum audit_verify(FunctionCallInfo fcinfo) {
    const text* link = text_or_null(fcinfo, 0);
    if (link != nullptr && !is_link(pg::bytes_of(link)))
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid link"),
                        errdetail("It is not a number, a colon and 64 hexadecimal digits."),
                        errhint("Pass what follows \"audit=\" in a line of the server log.")));
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    if (result->setDesc->natts != store::kFaultColumns)
        elog(ERROR, "idempotency: idem_audit_verify is not the function this library knows");
    int count;
    store::Fault* faults = store::faults_of_audit(link, &count);
    for (int i = 0; i < count; i++)
        tuplestore_putvalues(result->setResult, result->setDesc, faults[i].values, faults[i].nulls);
    return 0;
}

}  // namespace

}  // namespace idem::operate

IDEM_FUNCTION(idem_staff_audit_verify, idem::operate::audit_verify);
