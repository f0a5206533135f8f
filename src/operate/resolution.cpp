#include "operate/resolution.hpp"

#include "core/outcome.hpp"

#include "api/arguments.hpp"

namespace idem::operate {

using namespace api;

namespace {

core::Resolution resolution_of(const text* word) {
    StringInfoData known;
    initStringInfo(&known);
    for (const core::ResolutionEntry& entry : core::kResolutions) {
        if (entry.word == pg::bytes_of(word)) return entry.resolution;
        append_word(&known, entry.word);
    }
    raise_word("action", text_to_cstring(word), known.data);
}

// Refuses values that do not go with the action: the caller would believe that they are stored.
void check_fits(core::Resolution action, const claim::Response& response, const text* error) {
    if (action == core::Resolution::Complete && error != nullptr)
        raise_unused("error", "A completed record has none.");
    if (core::entry_of(action).status != core::Status::Retryable) return;
    constexpr const char* kDetail = "A record that will be executed again has no answer.";
    if (response.status_code) raise_unused("status_code", kDetail);
    if (response.body != nullptr) raise_unused("body", kDetail);
    if (response.headers != nullptr) raise_unused("headers", kDetail);
}

}  // namespace

void raise_unused(const char* what, const char* detail) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid %s", what),
                    errdetail("%s", detail), errhint("Omit it.")));
    pg_unreachable();
}

claim::Resolution resolution_of(FunctionCallInfo fcinfo, int action, int first, int reason) {
    core::Resolution chosen = resolution_of(required_text(fcinfo, action, "action"));
    claim::Response response{status_code_or_none(fcinfo, first), text_or_null(fcinfo, first + 1),
                             headers_or_null(fcinfo, first + 2)};
    claim::Resolution resolution{chosen, response, text_or_null(fcinfo, first + 3),
                                 reason_or_null(fcinfo, reason)};
    check_fits(chosen, response, resolution.error);
    if (chosen == core::Resolution::Reopen && !claim::says_why(resolution.reason))
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("reason is required"),
                        errdetail("Clients of a reopened record already got the failure."),
                        errhint("Say why it may be executed again.")));
    return resolution;
}

}  // namespace idem::operate
