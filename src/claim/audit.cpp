#include "claim/audit.hpp"

#include "core/outcome.hpp"

#include "claim/state.hpp"
#include "pg/jsonb.hpp"
#include "stats/events.hpp"
#include "store/audit.hpp"

namespace idem::claim {

void audit(const Audited& what) {
    bool named = what.id != nullptr && !what.anonymous;
    store::AuditRow row{};
    row.action = pg::make_text(what.action);
    row.scope = what.id != nullptr ? what.id->scope : what.scope;
    row.principal = named ? what.id->principal : nullptr;
    row.key = named ? what.id->key : nullptr;
    row.role = what.role;
    row.before = what.before;
    row.after = what.after;
    row.reason = what.reason;
    row.decided_by = GetUserNameFromId(GetSessionUserId(), false);
    row.acting_as = GetUserNameFromId(GetUserId(), false);
    row.erased = what.anonymous;
    store::add_audit_row(row);
    auto bytes_or_nothing = [](const text* value) {
        return value == nullptr ? std::string_view{} : pg::bytes_of(value);
    };
    auto json_or_nothing = [](Jsonb* value) {
        return value == nullptr ? std::string_view{} : pg::bytes_of(pg::jsonb_text(value));
    };
    stats::log_verdict({what.action, bytes_or_nothing(row.scope), what.role, row.decided_by,
                        row.acting_as, json_or_nothing(what.before), json_or_nothing(what.after),
                        bytes_or_nothing(row.principal), bytes_or_nothing(row.key),
                        bytes_or_nothing(what.reason)});
}

Jsonb* state_of(const store::Record& record) {
    pg::JsonbObject state = pg::begin_object();
    pg::add_member(&state, "status", core::entry_of(status_now(record)).word);
    pg::add_member(&state, "attempt", static_cast<std::int64_t>(record.attempt));
    if (record.status_code)
        pg::add_member(&state, "status_code", static_cast<std::int64_t>(*record.status_code));
    // Whether its holder was at work on it: then the decision has taken it out of its hands.
    if (record.status == core::Status::InProgress)
        pg::add_flag(&state, "alive", claim_lives(record));
    return pg::end_object(&state);
}

}  // namespace idem::claim
