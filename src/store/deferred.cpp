#include "store/deferred.hpp"

namespace idem::store {

namespace {

// nullptr: there is none. The server itself refuses a trigger deferred by SET CONSTRAINTS, because
// our statements are restricted operations. unique_key_recheck of a deferrable constraint is the
// server's own.
const char* deferred_trigger(Relation table) {
    const TriggerDesc* triggers = table->trigdesc;
    const char* name = nullptr;
    for (int i = 0; triggers != nullptr && i < triggers->numtriggers; i++) {
        const Trigger& trigger = triggers->triggers[i];
        if (trigger.tginitdeferred && trigger.tgenabled != TRIGGER_DISABLED &&
            trigger.tgfoid != F_UNIQUE_KEY_RECHECK)
            name = trigger.tgisinternal ? get_constraint_name(trigger.tgconstraint)
                                        : pstrdup(trigger.tgname);
    }
    return name;
}

}  // namespace

void refuse_deferred_trigger(Relation table) {
    const char* deferred = deferred_trigger(table);
    if (deferred == nullptr) return;
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("table idempotency.%s has a deferred trigger", RelationGetRelationName(table)),
         errdetail("Trigger \"%s\" would run at commit, with the rights of the committing user.",
                   deferred),
         errhint("Make the trigger INITIALLY IMMEDIATE, or drop it.")));
    pg_unreachable();
}

}  // namespace idem::store
