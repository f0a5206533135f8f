#include "operate/tally.hpp"

#include "core/time.hpp"

#include "config/policy.hpp"
#include "pg/datum.hpp"
#include "pg/jsonb.hpp"
#include "pg/wait.hpp"

namespace idem::operate {

namespace {

constexpr std::int64_t kTellEvery = 5 * core::kSecond;

// An obstacle, and its name.
struct Reason {
    const char* what;
    const char* name;
};

// The scope's entry; nullptr: the list is full.
LeftInScope* place_of(Tally* tally, Left* left, const text* scope, const Reason& why) {
    for (int i = 0; i < left->told; i++) {
        LeftInScope* told = &left->scopes[i];
        if (pg::bytes_of(told->scope) == pg::bytes_of(scope) &&
            (told->what == nullptr) == (why.what == nullptr) &&
            (why.what == nullptr || pg::bytes_of(told->name) == why.name))
            return told;
    }
    if (left->told == kMostTold) return nullptr;
    MemoryContext previous = MemoryContextSwitchTo(tally->context);
    LeftInScope* told = &left->scopes[left->told++];
    *told = {static_cast<text*>(pg::copy_varlena(scope)), why.what,
             why.what == nullptr ? nullptr : cstring_to_text(why.name), 0, 0};
    MemoryContextSwitchTo(previous);
    return told;
}

void note_left(Tally* tally, Left* left, const text* scope, const Reason& why) {
    LeftInScope* told = place_of(tally, left, scope, why);
    if (told != nullptr) told->records++;
    left->records++;
}

Reason why_closed(const text* scope) {
    config::Closure closure = config::closure_of(pg::bytes_of(scope));
    if (closure.column != nullptr) return {"invalid", closure.column};
    return {closure.role == nullptr ? nullptr : "role", closure.role};
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
    if (said == kRunning && tally->running++ < kMostTold) {
        MemoryContext previous = MemoryContextSwitchTo(tally->context);
        RunningKey* told = &tally->keys[tally->running - 1];
        told->scope = datumCopy(row[0], false, -1);
        told->principal = datumCopy(row[1], false, -1);
        told->key = datumCopy(row[2], false, -1);
        MemoryContextSwitchTo(previous);
    }
    const text* scope = DatumGetTextPP(row[0]);
    if (said == kClosed) note_left(tally, &tally->closed, scope, why_closed(scope));
    for (const char* why : {kNoKey, kTooLarge})
        if (said == why) note_left(tally, &tally->undecided, scope, {"why", why});
    if (said == kNoKey) tally->no_key++;
}

void count_closed_attempts(Tally* tally, const text* scope, std::int64_t attempts) {
    LeftInScope* told = place_of(tally, &tally->closed, scope, why_closed(scope));
    if (told != nullptr) told->attempts += attempts;
    tally->closed.attempts += attempts;
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
    return tally.running == 0 && tally.open == 0 && tally.closed.records == 0 &&
           tally.closed.attempts == 0;
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

Jsonb* scopes_of(const Left& left) {
    pg::JsonbArray list = pg::begin_array();
    for (int i = 0; i < left.told; i++) {
        const LeftInScope& told = left.scopes[i];
        pg::JsonbObject object = pg::begin_object();
        pg::add_member(&object, "scope", pg::bytes_of(told.scope));
        if (told.what != nullptr) pg::add_member(&object, told.what, pg::bytes_of(told.name));
        pg::add_member(&object, "records", told.records);
        if (told.attempts > 0) pg::add_member(&object, "attempts", told.attempts);
        pg::add_element(&list, pg::end_object(&object));
    }
    return pg::end_array(&list);
}

}  // namespace idem::operate
