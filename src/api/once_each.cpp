// idem_once_each.

#include "claim/once_each.hpp"

#include <algorithm>

#include "api/arguments.hpp"
#include "api/forward.hpp"
#include "claim/locks.hpp"
#include "pg/boundary.hpp"
#include "worker/presence.hpp"

namespace idem::api {

namespace {

// The keys of a call: first in the order of the array, then in that of their bytes.
struct Keys {
    store::Identity* ids;
    int* places;  // of each in the array
    int count;
};

// Each key once, where it stands first.
Keys sorted_keys(FunctionCallInfo fcinfo) {
    pg::TextList list =
        pg::text_list(PG_GETARG_ARRAYTYPE_P(0), "keys", "Split the keys over several calls.");
    text* scope = label(fcinfo, 1, "scope");
    text* principal = label(fcinfo, 2, "principal");
    auto less = [&list](int a, int b) {
        int order = list.items[a].compare(list.items[b]);
        return order != 0 ? order < 0 : a < b;
    };
    auto same = [&list](int a, int b) { return list.items[a] == list.items[b]; };
    Keys keys{};
    keys.places = static_cast<int*>(palloc(sizeof(int) * (list.count + 1)));
    for (std::size_t i = 0; i < list.count; i++) keys.places[i] = static_cast<int>(i);
    int* end = keys.places + list.count;
    std::sort(keys.places, end, less);
    keys.count = static_cast<int>(std::unique(keys.places, end, same) - keys.places);
    Size size = sizeof(store::Identity) * (static_cast<Size>(keys.count) + 1);
    keys.ids = static_cast<store::Identity*>(palloc(size));
    for (int i = 0; i < keys.count; i++)
        keys.ids[i] = checked_identity(scope, principal, pg::make_text(list.items[keys.places[i]]));
    return keys;
}

// The new keys, in the order of the array.
void return_new(const Keys& keys, const bool* is_new, ReturnSetInfo* result) {
    auto* answers = static_cast<int*>(palloc(sizeof(int) * (static_cast<Size>(keys.count) + 1)));
    int count = 0;
    for (int i = 0; i < keys.count; i++)
        if (is_new[i]) answers[count++] = i;
    std::sort(answers, answers + count,
              [&keys](int a, int b) { return keys.places[a] < keys.places[b]; });
    for (int i = 0; i < count; i++) {
        Datum key = PointerGetDatum(keys.ids[answers[i]].key);
        bool null = false;
        tuplestore_putvalues(result->setResult, result->setDesc, &key, &null);
    }
}

// idem_once_each(keys, scope, principal, ttl, wait, same_statement)
Datum once_each(FunctionCallInfo fcinfo) {
    worker::ensure_launcher();
    if (PG_ARGISNULL(0)) raise_null("keys");
    Keys keys = sorted_keys(fcinfo);
    claim::Question question{};
    question.function = "idem_once_each()";
    question.ttl = span_or_none(fcinfo, 3, "ttl", core::kTtlRange);
    question.wait = span_or_none(fcinfo, 4, "wait", core::kWaitRange).value_or(claim::kForEver);
    question.without_request = true;
    question.transactional = true;  // complete at once
    question.same_statement = bool_or(fcinfo, 5, false);
    auto* is_new = static_cast<bool*>(palloc0(static_cast<Size>(keys.count) + 1));
    if (keys.count > 0) {
        question.id = keys.ids[0];
        claim::once_each(question, keys.ids, keys.count, is_new);
    }
    InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
    return_new(keys, is_new, reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo));
    return 0;
}

}  // namespace

}  // namespace idem::api

IDEM_FUNCTION(idem_once_each, idem::api::at_its_records<idem::api::once_each>);
