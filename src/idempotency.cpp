// What happens when the library is loaded: settings, then hooks, and nothing else.

#include "claim/transaction.hpp"
#include "config/policy.hpp"
#include "config/settings.hpp"
#include "pg/boundary.hpp"

extern "C" {
#pragma GCC visibility push(default)
PG_MODULE_MAGIC;
void _PG_init(void);
#pragma GCC visibility pop
}

void _PG_init(void) {
    idem::pg::end_session_on_terminate();
    idem::config::define_settings();
    idem::config::watch_policy_changes();
    idem::claim::watch_transactions();
}
