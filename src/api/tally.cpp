#include "api/tally.hpp"

#include "core/time.hpp"

#include "config/policy.hpp"
#include "pg/datum.hpp"
#include "pg/jsonb.hpp"
#include "pg/wait.hpp"

namespace idem::api {

namespace {

constexpr std::int64_t kTellEvery = 5 * core::kSecond;

void note_running(Tally* tally, const Datum* row) {
    if (tally->running < kMostTold) {
        MemoryContext previous = MemoryContextSwitchTo(tally->context);
        RunningKey* told = &tally->keys[tally->running];
        told->scope = datumCopy(row[0], false, -1);
        told->principal = datumCopy(row[1], false, -1);
        told->key = datumCopy(row[2], false, -1);
        MemoryContextSwitchTo(previous);
    }
    tally->running++;
}

// Where it is told; nullptr: it is one too many.
ClosedScope* closed_scope(Tally* tally, const text* scope) {
    for (int i = 0; i < tally->told_scopes; i++)
        if (pg::bytes_of(tally->scopes[i].scope) == pg::bytes_of(scope)) return &tally->scopes[i];
    if (tally->told_scopes == kMostTold) return nullptr;
    MemoryContext previous = MemoryContextSwitchTo(tally->context);
    const char* role = config::closing_role(pg::bytes_of(scope));
    ClosedScope* told = &tally->scopes[tally->told_scopes++];
    *told = {static_cast<text*>(pg::copy_varlena(scope)),
             role == nullptr ? nullptr : cstring_to_text(role), 0, 0};
    MemoryContextSwitchTo(previous);
    return told;
}

void note_closed(Tally* tally, const text* scope) {
    ClosedScope* told = closed_scope(tally, scope);
    if (told != nullptr) told->records++;
    tally->closed++;
}

}  // namespace

Tally* begin_tally(const char* procedure) {
    auto* tally = static_cast<Tally*>(palloc0(sizeof(Tally)));
    tally->procedure = procedure;
    tally->context = CurrentMemoryContext;
    tally->told_at = pg::monotonic_micros();
    return tally;
}

void count_record(Tally* tally, const text* word, const Datum* row) {
    std::string_view said = pg::bytes_of(word);
    tally->seen++;
    if (said == kDone) tally->done++;
    if (said == kRunning) note_running(tally, row);
    if (said == kClosed) note_closed(tally, DatumGetTextPP(row[0]));
}

void count_closed_attempts(Tally* tally, const text* scope, std::int64_t attempts) {
    ClosedScope* told = closed_scope(tally, scope);
    if (told != nullptr) told->attempts += attempts;
    tally->closed_attempts += attempts;
}

void tell_progress(Tally* tally) {
    std::int64_t now = pg::monotonic_micros();
    if (now - tally->told_at < kTellEvery) return;
    tally->told_at = now;
    ereport(NOTICE,
            (errmsg("%s: %lld of %lld records, of which %lld are being executed", tally->procedure,
                    static_cast<long long>(tally->seen), static_cast<long long>(tally->total),
                    static_cast<long long>(tally->running))));
}

bool is_complete(const Tally& tally) {
    return tally.running == 0 && tally.closed == 0 && tally.closed_attempts == 0;
}

Jsonb* running_keys(const Tally& tally) {
    pg::JsonbArray list = pg::begin_array();
    for (int i = 0; i < Min(tally.running, kMostTold); i++) {
        const RunningKey& told = tally.keys[i];
        pg::JsonbObject object = pg::begin_object();
        pg::add_member(&object, "scope", pg::bytes_of(DatumGetTextPP(told.scope)));
        pg::add_member(&object, "principal", pg::bytes_of(DatumGetTextPP(told.principal)));
        pg::add_member(&object, "key", pg::bytes_of(DatumGetTextPP(told.key)));
        pg::add_element(&list, pg::end_object(&object));
    }
    return pg::end_array(&list);
}

Jsonb* closed_scopes(const Tally& tally) {
    pg::JsonbArray list = pg::begin_array();
    for (int i = 0; i < tally.told_scopes; i++) {
        const ClosedScope& told = tally.scopes[i];
        pg::JsonbObject object = pg::begin_object();
        pg::add_member(&object, "scope", pg::bytes_of(told.scope));
        if (told.role != nullptr) pg::add_member(&object, "role", pg::bytes_of(told.role));
        pg::add_member(&object, "records", told.records);
        if (told.attempts > 0) pg::add_member(&object, "attempts", told.attempts);
        pg::add_element(&list, pg::end_object(&object));
    }
    return pg::end_array(&list);
}

}  // namespace idem::api
