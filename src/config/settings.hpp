// Every setting of the extension, prefix "idempotency.". A new one is a variable and a line of the
// table, both here and nowhere else.
#pragma once

#include "core/policy.hpp"
#include "core/time.hpp"

#include "pg/pg.hpp"

namespace idem::config {

enum class StoreChoice {
    Auto,  // the heap store where the table allows it, else SQL
    Sql,
    Heap,  // an error where the table does not allow it
};

// The initial values are the defaults; the table has the units.
inline int default_ttl = 24 * 60 * 60;
inline int default_retention = 0;
inline int default_lease = 60 * 1000;
inline int default_wait = 0;
inline int max_body_bytes = 4 * 1024 * 1024;
inline int cleanup_interval = 60;  // 0: no sweeping
// A batch is shorter than a slice of the scheduler's time, so callers hardly wait for it.
inline int cleanup_batch_size = 200;
// Sweepers rest for nine tenths of the time, so a few of them cost callers as little as one.
inline int cleanup_max_workers = 3;
inline int cleanup_grace = 0;  // seconds after its retention for which a record is kept
inline int audit_retention = 365 * 24 * 60 * 60;  // seconds; 0: for ever
inline bool log_audit = true;
inline int log_events = 0;
inline bool log_keys = false;
inline char* encryption_key_file = nullptr;
inline int store_setting = static_cast<int>(StoreChoice::Auto);

// Values of log_events.
enum LogEvents { kLogOff, kLogProblems, kLogAll };
inline constexpr config_enum_entry kLogEventsWords[] = {{"off", kLogOff, false},
                                                        {"problems", kLogProblems, false},
                                                        {"all", kLogAll, false},
                                                        {nullptr, 0, false}};

inline constexpr config_enum_entry kStoreWords[] = {
    {"auto", static_cast<int>(StoreChoice::Auto), false},
    {"sql", static_cast<int>(StoreChoice::Sql), false},
    {"heap", static_cast<int>(StoreChoice::Heap), false},
    {nullptr, 0, false}};

inline constexpr int kNoOption = -1;

struct Setting {
    const char* name;
    const char* short_description;
    const char* long_description;
    GucContext context;
    int* number;    // of a word, its place; nullptr: it is a flag
    int least = 0;  // of a number
    int most = 0;
    int unit = 0;
    int option = kNoOption;  // the option of a policy that it is the default of
    const config_enum_entry* words = nullptr;
    bool* flag = nullptr;
    char** path = nullptr;  // of a file that only superusers may know of
};

// Callers may not set how long a key is remembered, or when its request may be taken over.
inline constexpr Setting kSettings[] = {
    {"idempotency.default_ttl", "Sets how long the answer of a request is replayed.",
     "The time counts from the claim. A policy or an argument overrides it.", PGC_SUSET,
     &default_ttl, 1, INT_MAX, GUC_UNIT_S, core::policy_column("ttl")},
    {"idempotency.default_retention", "Sets how long a key is remembered.",
     "Between ttl and retention, repeats are refused. Zero means as long as the ttl.", PGC_SUSET,
     &default_retention, 0, INT_MAX, GUC_UNIT_S, core::policy_column("retention")},
    {"idempotency.default_lease", "Sets how long a committed claim is valid without a heartbeat.",
     "After that, the next caller takes it over.", PGC_SUSET, &default_lease, 1, INT_MAX,
     GUC_UNIT_MS, core::policy_column("lease")},
    {"idempotency.default_wait", "Sets how long idem_begin waits for a running execution.",
     "Zero means that a duplicate is answered immediately.", PGC_USERSET, &default_wait, 0,
     static_cast<int>(core::kLongestWait / core::kMillisecond), GUC_UNIT_MS,
     core::policy_column("wait")},
    {"idempotency.max_body_bytes",
     "Sets the size of the largest response body that a record keeps.",
     "The limit also applies to headers, to the state of a checkpoint, and to a stored request.",
     PGC_SUSET, &max_body_bytes, 0, static_cast<int>(core::kLargestBody), GUC_UNIT_BYTE,
     core::policy_column("max_body_bytes")},
    {"idempotency.cleanup_interval", "Sets how often expired records are removed.",
     "Zero means never, except by idem_cleanup.", PGC_SIGHUP, &cleanup_interval, 0, 24 * 60 * 60,
     GUC_UNIT_S},
    {"idempotency.cleanup_batch_size",
     "Sets the maximum number of records that a sweeper removes in one transaction.", nullptr,
     PGC_SIGHUP, &cleanup_batch_size, 1, 100000},
    {"idempotency.cleanup_max_workers",
     "Sets the maximum number of sweepers that run at the same time.",
     "Each works in another database and needs one of max_worker_processes.", PGC_SIGHUP,
     &cleanup_max_workers, 1, 32},
    {"idempotency.cleanup_grace", "Sets how long the sweeper keeps a record after its retention.",
     nullptr, PGC_SIGHUP, &cleanup_grace, 0, INT_MAX, GUC_UNIT_S},
    {"idempotency.audit_retention", "Sets how long decisions are kept in idempotency.audit.",
     "Zero means forever.", PGC_SIGHUP, &audit_retention, 0, INT_MAX, GUC_UNIT_S},
    {"idempotency.log_audit", "Writes the newest link of the audit to the server log.",
     "Compare it with idem_audit_verify, to notice rows that a superuser has removed.", PGC_SUSET,
     nullptr, 0, 0, 0, kNoOption, nullptr, &log_audit},
    {"idempotency.log_events", "Selects the decisions that are written to the server log.", nullptr,
     PGC_SUSET, &log_events, 0, 0, 0, kNoOption, kLogEventsWords},
    {"idempotency.log_keys", "Writes the principal and the key to these log lines, too.",
     "Keys may be secrets.", PGC_SUSET, nullptr, 0, 0, 0, kNoOption, nullptr, &log_keys},
    {"idempotency.encryption_key_file", "Sets the file with the keys of encrypted records.",
     "It must be an absolute path outside the data directory. A reload reads it again.", PGC_SIGHUP,
     nullptr, 0, 0, GUC_SUPERUSER_ONLY, kNoOption, nullptr, nullptr, &encryption_key_file},
    {"idempotency.store", "Selects how the table of records is read and written.",
     "The value auto means directly in a plain local table, and otherwise with SQL.", PGC_SIGHUP,
     &store_setting, 0, 0, 0, kNoOption, kStoreWords},
};

void define_settings();

// The setting's value when this process first asked. It stays fixed: claims of one transaction, and
// of sessions that meet, must use one way.
StoreChoice store_choice();

// The policy where no row of idempotency.policy holds.
core::Policy default_policy();

// The setting that an option falls back to; nullptr: none.
const Setting* setting_for(int option);

}  // namespace idem::config
