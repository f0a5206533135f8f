-- Promise: a member of pg_read_all_data reads the views, as it reads the tables.
\a\pset footer off

CREATE ROLE regress_idem_reader IN ROLE pg_read_all_data;
SELECT idem_policy_set('readers', keep_history => true, on_lease_expiry => 'unknown');
SELECT count(*) FROM unnest('{a,b}'::text[]) k, idem_begin(k, '{"card": 7}', 'readers', 'p', lease => '1 hour');
SELECT idem_fail('b', 'secret', true, scope => 'readers', principal => 'p', token => token)
  FROM idempotency.record WHERE (scope, key) = ('readers', 'b');
UPDATE idempotency.record SET lease_until = now() WHERE (scope, key) = ('readers', 'a');
SET SESSION AUTHORIZATION regress_idem_reader;
SELECT key, status, error FROM idempotency.records WHERE scope = 'readers' ORDER BY key;
SELECT key, how, error FROM idempotency.attempts WHERE scope = 'readers';
SELECT key FROM idempotency.unknown WHERE scope = 'readers';
SELECT count(*) > 0 AS decisions FROM idempotency.decisions WHERE scope = 'readers';
SELECT count(*) FROM idempotency.in_flight WHERE scope = 'readers';
SELECT count(*) FROM idempotency.abandoned WHERE scope = 'readers';
SELECT count(*) FROM idempotency.exhausted WHERE scope = 'readers';
SELECT count(*) FROM idempotency.policies WHERE scope_pattern = 'readers';
SELECT count(*) FROM idempotency.stores;
SELECT count(*) FROM idempotency.sweeper;
SELECT count(*) >= 0 AS keys FROM idempotency.encryption_keys;
-- It decides nothing.
\set VERBOSITY sqlstate
SELECT idem_forget('b', 'readers', 'p', 'because');
SELECT idem_get('b', 'readers', 'p');
RESET SESSION AUTHORIZATION;
\set VERBOSITY default
SELECT idem_policy_drop('readers', 'a test');
DELETE FROM idempotency.record WHERE scope = 'readers';
DELETE FROM idempotency.attempt WHERE scope = 'readers';
DROP ROLE regress_idem_reader;
