// Loading the library: settings, hooks, shared memory, launcher, nothing else.

#include "api/delegation.hpp"
#include "claim/open_claims.hpp"
#include "claim/token.hpp"
#include "claim/waiters.hpp"
#include "config/policy.hpp"
#include "config/settings.hpp"
#include "pg/boundary.hpp"
#include "pg/installed.hpp"
#include "pg/snapshot.hpp"
#include "stats/counters.hpp"
#include "store/key_use.hpp"
#include "store/record.hpp"
#include "store/record_table.hpp"
#include "store/seed.hpp"
#include "store/store_errors.hpp"
#include "worker/presence.hpp"

extern "C" {
#pragma GCC visibility push(default)
IDEM_MODULE_MAGIC;
void _PG_init(void);
#pragma GCC visibility pop
}

void _PG_init(void) {
    idem::pg::end_session_on_terminate();
    idem::pg::watch_version(idem::store::kRecordTable);
    idem::pg::watch_imported_snapshots();
    idem::config::define_settings();
    idem::config::watch_policy_changes();
    idem::store::watch_record_table();
    idem::store::watch_keys();
    idem::store::watch_seed();
    idem::store::watch_store_errors(idem::stats::count_store_error);
    idem::claim::watch_transactions();
    idem::api::watch_delegation();
    // Preloading adds statistics and a launcher from the start; the rest works without it.
    if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade) return;
    idem::stats::request_shared_memory();
    idem::claim::request_token_memory();
    idem::claim::request_waiter_memory();
    idem::worker::register_launcher_at_start();
}
