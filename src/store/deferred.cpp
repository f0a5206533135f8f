#include "store/deferred.hpp"

namespace idem::store {

// The server itself refuses a trigger deferred by SET CONSTRAINTS, because our statements are
// restricted operations. unique_key_recheck of a deferrable constraint is the server's own.
void refuse_deferred_trigger(Relation table) {
    const TriggerDesc* triggers = table->trigdesc;
    for (int i = 0; triggers != nullptr && i < triggers->numtriggers; i++) {
        const Trigger& trigger = triggers->triggers[i];
        if (!trigger.tginitdeferred || trigger.tgenabled == TRIGGER_DISABLED ||
            trigger.tgfoid == F_UNIQUE_KEY_RECHECK)
            continue;
        const char* name = trigger.tgisinternal ? get_constraint_name(trigger.tgconstraint)
                                                : pstrdup(trigger.tgname);
        ereport(
            ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("table idempotency.%s has a deferred trigger", RelationGetRelationName(table)),
             errdetail(
                 "Trigger \"%s\" would run at commit, with the rights of the committing user.",
                 name),
             errhint("Make the trigger INITIALLY IMMEDIATE, or drop it.")));
    }
}

}  // namespace idem::store
