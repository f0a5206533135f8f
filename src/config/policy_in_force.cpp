// The values are those of policy_for(). This file finds the origin of each.

#include "config/policy_in_force.hpp"

#include "core/header.hpp"

#include "config/policy.hpp"
#include "config/settings.hpp"
#include "pg/jsonb.hpp"

namespace idem::config {

namespace {

using core::OptionType;
using core::PolicyColumn;

constexpr int kTtl = core::policy_column("ttl");
constexpr int kRetention = core::policy_column("retention");
constexpr int kMaxTtl = core::policy_column("max_ttl");
constexpr int kLease = core::policy_column("lease");
constexpr int kMaxLease = core::policy_column("max_lease");
constexpr int kDeriveWindow = core::policy_column("derive_window");
constexpr int kWait = core::policy_column("wait");
constexpr int kMaxAttempts = core::policy_column("max_attempts");
constexpr int kMaxOpenClaims = core::policy_column("max_open_claims");
constexpr int kAbandonAfter = core::policy_column("abandon_after");
constexpr int kDropHeaders = core::policy_column("drop_headers");

// The origin of an option's value.
struct Speaker {
    Source source;
    const char* origin;
};

struct Known {
    const PolicyRow* row;  // nullptr: none
    const char* pattern;
    core::Policy values;
    Speaker speakers[kOptions];
};

Speaker speaker_for(const Known& known, int option) {
    if (known.row != nullptr && !known.row->nulls[option]) return {Source::Policy, known.pattern};
    const Setting* setting = setting_for(option);
    if (setting != nullptr) return {Source::Setting, setting->name};
    return {Source::Default, nullptr};
}

std::int64_t value_of(const Known& known, int option) {
    return core::kPolicyColumns[option].get(known.values);
}

void say(Known* known, int option, std::optional<std::int64_t> value) {
    if (!value) return;
    core::kPolicyColumns[option].put(&known->values, *value);
    known->speakers[option] = {Source::Argument, nullptr};
}

// The value follows from the other option.
void follow(Known* known, int option, int other) {
    core::kPolicyColumns[option].put(&known->values, value_of(*known, other));
    known->speakers[option] = known->speakers[other];
}

bool is_unlimited(int option, std::int64_t value) {
    if (option == kAbandonAfter) return value == 0;
    return (option == kMaxTtl || option == kMaxLease) && value == core::kUncapped;
}

// policy_of() has capped the row's value, so the span may equal its cap.
void cap(Known* known, int option, int most) {
    bool given = known->row != nullptr && !known->row->nulls[option] &&
                 known->speakers[option].source == Source::Policy;
    bool argued = known->speakers[option].source == Source::Argument;
    if (!given && !is_unlimited(most, value_of(*known, most)) &&
        value_of(*known, option) >= value_of(*known, most) + (argued ? 1 : 0))
        follow(known, option, most);
}

Known known_of(std::string_view scope, const CallSays& call) {
    Known known{};
    known.row = policy_row_for(scope);
    if (known.row != nullptr) {
        std::string_view pattern = pattern_of(*known.row);
        known.pattern = pnstrdup(pattern.data(), pattern.size());
    }
    known.values = known.row == nullptr ? default_policy() : policy_of(given_in(*known.row));
    for (int i = 1; i < kOptions; i++) known.speakers[i] = speaker_for(known, i);
    say(&known, kTtl, call.ttl);
    say(&known, kLease, call.lease);
    say(&known, kWait, call.wait);
    cap(&known, kTtl, kMaxTtl);
    cap(&known, kLease, kMaxLease);
    // Retention is at least the ttl, whatever the origin of either.
    if (known.values.retention < known.values.ttl) follow(&known, kRetention, kTtl);
    if (known.values.derive_window == 0) follow(&known, kDeriveWindow, kTtl);
    return known;
}

// ---- values as text ----

const char* text_of_span(int option, std::int64_t micros) {
    if (is_unlimited(option, micros)) return nullptr;
    Datum span = IntervalPGetDatum(pg::interval_in_days(micros));
    return DatumGetCString(DirectFunctionCall1(interval_out, span));
}

const char* text_of_list(Datum list) {
    return OidOutputFunctionCall(F_ARRAY_OUT, list);
}

Datum default_drop_list() {
    Datum names[std::size(core::kDroppedHeaders)];
    int count = 0;
    for (std::string_view name : core::kDroppedHeaders)
        names[count++] = PointerGetDatum(pg::make_text(name));
    return PointerGetDatum(construct_array(names, count, TEXTOID, -1, false, TYPALIGN_INT));
}

const char* text_of_own_list(const Known& known, int option) {
    if (known.row != nullptr && !known.row->nulls[option])
        return text_of_list(known.row->values[option]);
    if (option == kDropHeaders) return text_of_list(default_drop_list());
    if (option == kExcludeFields) return "{}";
    return nullptr;
}

const char* text_of_map(const Known& known, int option) {
    if (known.row == nullptr || known.row->nulls[option]) return "{}";
    return text_to_cstring(pg::jsonb_text(DatumGetJsonbP(known.row->values[option])));
}

const char* text_of_number(int option, std::int64_t number) {
    if ((option == kMaxAttempts || option == kMaxOpenClaims) && number == 0) return nullptr;
    return psprintf(INT64_FORMAT, number);
}

const char* text_of(const Known& known, int option) {
    const PolicyColumn& column = core::kPolicyColumns[option];
    switch (column.type) {
        case OptionType::Span:
            return text_of_span(option, value_of(known, option));
        case OptionType::Number:
            return text_of_number(option, value_of(known, option));
        case OptionType::Flag:
            return value_of(known, option) != 0 ? "true" : "false";
        case OptionType::Word: {
            std::string_view word = core::word_at(value_of(known, option), column.words);
            return pnstrdup(word.data(), word.size());
        }
        case OptionType::List:
            return text_of_own_list(known, option);
        case OptionType::Map:
            return text_of_map(known, option);
        case OptionType::Role:
            if (known.row == nullptr || known.row->nulls[option]) return nullptr;
            return pstrdup(NameStr(*DatumGetName(known.row->values[option])));
        case OptionType::Pattern:
        case OptionType::Moment:
            break;
    }
    return nullptr;
}

}  // namespace

const char* word_of(Source source) {
    switch (source) {
        case Source::Argument:
            return "argument";
        case Source::Policy:
            return "policy";
        case Source::Setting:
            return "setting";
        case Source::Default:
            break;
    }
    return "default";
}

PolicyInForce policy_in_force(std::string_view scope, const CallSays& call) {
    Known known = known_of(scope, call);
    PolicyInForce result{};
    for (int i = 1; i < kOptions; i++)
        result.options[i - 1] = {core::kPolicyColumns[i].name, core::kPolicyColumns[i].type,
                                 text_of(known, i), known.speakers[i].source,
                                 known.speakers[i].origin};
    return result;
}

}  // namespace idem::config
