#include "config/settings.hpp"

#include "core/duration.hpp"

namespace idem::config {

namespace {

// Seconds and milliseconds, as the units of the settings below.
int default_ttl = 24 * 60 * 60;
int default_retention = 0;
int default_lease = 60 * 1000;
int default_wait = 0;
int max_body_bytes = 4 * 1024 * 1024;
int cleanup_interval_seconds = 60;
// A batch works for less than a slice of the scheduler's time, so that callers hardly wait for it.
int cleanup_batch_rows = 200;
int cleanup_grace_seconds = 0;
int log_events_choice = static_cast<int>(LogEvents::Off);
bool log_keys_switch = false;
int store_setting = static_cast<int>(core::StoreChoice::Auto);
// What the setting was when this process first needed it.
core::StoreChoice store_chosen;
bool store_is_chosen = false;

const config_enum_entry kLogEventsChoices[] = {
    {"off", static_cast<int>(LogEvents::Off), false},
    {"problems", static_cast<int>(LogEvents::Problems), false},
    {"all", static_cast<int>(LogEvents::All), false},
    {nullptr, 0, false},
};

const config_enum_entry kStoreChoices[] = {
    {"auto", static_cast<int>(core::StoreChoice::Auto), false},
    {"sql", static_cast<int>(core::StoreChoice::Sql), false},
    {"heap", static_cast<int>(core::StoreChoice::Heap), false},
    {nullptr, 0, false},
};

struct IntSetting {
    const char* name;
    const char* short_description;
    const char* long_description;
    int* variable;
    int least;
    int most;
    GucContext context;
    int unit;
};

// What decides how long a key is remembered, or when its request may be taken over, is not for
// callers.
const IntSetting kSettings[] = {
    {"idempotency.default_ttl", "How long the answer of a request is replayed.",
     "Counted from the claim. A policy or an argument wins over it.", &default_ttl, 1, INT_MAX,
     PGC_SUSET, GUC_UNIT_S},
    {"idempotency.default_retention", "How long a key is remembered at all.",
     "Between ttl and retention a late retry is refused. Zero: as long as the ttl.",
     &default_retention, 0, INT_MAX, PGC_SUSET, GUC_UNIT_S},
    {"idempotency.default_lease", "How long a committed claim may be silent.",
     "After that the next caller takes it over.", &default_lease, 1, INT_MAX, PGC_SUSET,
     GUC_UNIT_MS},
    {"idempotency.default_wait", "How long idem_begin waits for a running execution.",
     "Zero: a duplicate is answered at once.", &default_wait, 0,
     static_cast<int>(core::kLongestWait / core::kMillisecond), PGC_USERSET, GUC_UNIT_MS},
    {"idempotency.max_body_bytes", "Largest response body that a record keeps.",
     "The limit of headers, of a checkpoint's state, and of a stored request, too.",
     &max_body_bytes, 0, static_cast<int>(core::kLargestBody), PGC_SUSET, GUC_UNIT_BYTE},
    {"idempotency.cleanup_interval", "How often expired records are removed.",
     "Zero: never, except by idem_cleanup.", &cleanup_interval_seconds, 0, 24 * 60 * 60, PGC_SIGHUP,
     GUC_UNIT_S},
    {"idempotency.cleanup_batch_size", "Most records that one transaction of the sweeper removes.",
     nullptr, &cleanup_batch_rows, 1, 100000, PGC_SIGHUP, 0},
    {"idempotency.cleanup_grace", "How long the sweeper keeps a record after its retention.",
     nullptr, &cleanup_grace_seconds, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_S},
};

void define_log_settings() {
    DefineCustomEnumVariable("idempotency.log_events",
                             "Which decisions are written to the server log.", nullptr,
                             &log_events_choice, /* boot_val */ log_events_choice,
                             kLogEventsChoices, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable(
        "idempotency.log_keys", "Whether these lines name the principal and the key.",
        "Keys may be secrets.", &log_keys_switch,
        /* boot_val */ log_keys_switch, PGC_SUSET, 0, nullptr, nullptr, nullptr);
}

void define_store_setting() {
    DefineCustomEnumVariable("idempotency.store", "How the table of records is read and written.",
                             "auto: directly where it is a plain local table, else with SQL.",
                             &store_setting, /* boot_val */ store_setting, kStoreChoices,
                             PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
}

}  // namespace

void define_settings() {
    for (const IntSetting& s : kSettings)
        DefineCustomIntVariable(s.name, s.short_description, s.long_description, s.variable,
                                /* boot_val */ *s.variable, s.least, s.most, s.context, s.unit,
                                /* check_hook */ nullptr, /* assign_hook */ nullptr,
                                /* show_hook */ nullptr);
    define_log_settings();
    define_store_setting();
    MarkGUCPrefixReserved("idempotency");
}

LogEvents log_events() {
    return static_cast<LogEvents>(log_events_choice);
}

bool log_keys() {
    return log_keys_switch;
}

core::StoreChoice store_choice() {
    if (!store_is_chosen) store_chosen = static_cast<core::StoreChoice>(store_setting);
    store_is_chosen = true;
    return store_chosen;
}

int cleanup_interval() {
    return cleanup_interval_seconds;
}

int cleanup_batch_size() {
    return cleanup_batch_rows;
}

std::int64_t cleanup_grace() {
    return cleanup_grace_seconds * core::kSecond;
}

core::Policy default_policy() {
    core::Policy policy{};
    policy.ttl = default_ttl * core::kSecond;
    policy.retention = default_retention * core::kSecond;
    policy.lease = default_lease * core::kMillisecond;
    policy.wait = default_wait * core::kMillisecond;
    policy.retry_base = core::kDefaultRetryBase;
    policy.retry_cap = core::kDefaultRetryCap;
    policy.on_lease_expiry = core::OnLeaseExpiry::Takeover;
    policy.max_body_bytes = max_body_bytes;
    policy.on_large_body = core::OnLargeBody::Error;
    return policy;
}

}  // namespace idem::config
