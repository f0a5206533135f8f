-- Promise: stored data can be read with plain SQL, as words and without tokens. Every setting has a
-- range, and values outside it are refused.
\a\pset footer off

SELECT attname AS column, format_type(atttypid, atttypmod) AS type
  FROM pg_attribute WHERE attrelid = 'idempotency.records'::regclass AND attnum > 0 ORDER BY attnum;

-- Each status in its word.
SELECT count(*) FROM unnest('{in_progress,completed,failed,retryable,unknown}'::text[]) k,
       idem_begin(k, '{"amount": 5}', 'records', 'shop', holder => 'worker-1') c WHERE c.outcome = 'execute';
SELECT idem_complete(key, 201, 'made', '{"X": "y"}', scope, principal, token)
  FROM idempotency.record WHERE (scope, key) = ('records', 'completed');
SELECT idem_fail(key, 'declined', key = 'retryable', scope => scope, principal => principal, token => token)
  FROM idempotency.record WHERE scope = 'records' AND key IN ('failed', 'retryable') ORDER BY key;
SELECT idem_checkpoint(key, 'reserved', '{"seat": "12A"}', scope, principal, token) > now() AS written
  FROM idempotency.record WHERE (scope, key) = ('records', 'in_progress');
UPDATE idempotency.record SET lease_until = now(), if_silent = 'u' WHERE (scope, key) = ('records', 'unknown');
SELECT key, status, attempt, status_code, headers, convert_from(body, 'UTF8') AS body, body_omitted, error
  FROM idempotency.records WHERE scope = 'records' ORDER BY key;
SELECT key, recovery_point, state, holder, held, fingerprint = idem_fingerprint('{"amount": 5}') AS fingerprint, request, resolved_by
  FROM idempotency.records WHERE scope = 'records' ORDER BY key;
SELECT key, created_at = claimed_at AS first_claim, finished_at >= claimed_at AS finished, lease_until > now() AS lease,
       next_attempt_at >= finished_at AS next_attempt, expires_at - claimed_at AS ttl, retained_until - claimed_at AS retention
  FROM idempotency.records WHERE scope = 'records' ORDER BY key;

-- The first records in the order of their keys are read from the index, without a sort of all.
SET enable_seqscan = off;
EXPLAIN (COSTS off) SELECT key, status FROM idempotency.records ORDER BY key, scope LIMIT 1;
RESET enable_seqscan;

-- Monitoring roles see that, but no requests and answers.
CREATE ROLE regress_idem_watcher IN ROLE pg_monitor;
SET ROLE regress_idem_watcher;
SELECT key, status, attempt FROM idempotency.records WHERE scope = 'records' ORDER BY key;
SELECT key, status FROM idempotency.abandoned WHERE scope = 'records';
SELECT key, holder FROM idempotency.in_flight WHERE scope = 'records';
SELECT * FROM refused($$
SELECT body FROM idempotency.records;
SELECT token FROM idempotency.record;
$$);
RESET ROLE;
DROP ROLE regress_idem_watcher;

-- The table takes no status that has no word, and no claim without a lease.
\set VERBOSITY terse
SELECT statement, code, error FROM refused($$
UPDATE idempotency.record SET status = 'y' WHERE scope = 'records';
UPDATE idempotency.record SET lease_until = NULL WHERE (scope, key) = ('records', 'in_progress');
$$);
\set VERBOSITY default
-- A record is found by its key alone, removed by age, and listed while it is in progress: these
-- indexes and no others.
SELECT indexdef FROM pg_indexes WHERE schemaname = 'idempotency' AND tablename = 'record' ORDER BY indexname;
-- Keys and scopes compare byte by byte, principals as the database does.
SELECT attname, collname FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
 WHERE attrelid = 'idempotency.record'::regclass AND attname IN ('scope', 'principal', 'key') ORDER BY attnum;
-- Signs of life change no indexed column: the updates stay HOT.
TRUNCATE idempotency.record;
SELECT token FROM idem_begin('hot', '{"amount": 5}', 'records') \gset
BEGIN;
SELECT pg_stat_get_xact_tuples_updated(t) AS updates, pg_stat_get_xact_tuples_hot_updated(t) AS hot_updates,
       pg_stat_get_xact_numscans(t) AS scans
  FROM CAST('idempotency.record' AS regclass) t \gset
SELECT idem_extend('hot', :token, scope => 'records') > now() AS prolonged;
SELECT idem_checkpoint('hot', 'reserved', '{"seat": "12A"}', 'records', token => :token) > now() AS prolonged;
SELECT pg_stat_get_xact_tuples_updated(t) - :updates AS updates,
       pg_stat_get_xact_tuples_hot_updated(t) - :hot_updates AS hot_updates
  FROM CAST('idempotency.record' AS regclass) t;
-- An index finds claims in progress, abandoned claims and expired records, also in a small table.
SELECT (SELECT count(*) FROM idempotency.in_flight WHERE kind = 'leased') AS in_flight, (SELECT count(*) FROM idempotency.abandoned) AS abandoned,
       (SELECT backlog FROM idempotency.sweeper) AS backlog;
SELECT pg_stat_get_xact_numscans('idempotency.record'::regclass) - :scans AS reads_of_the_whole_table;
-- With its answer a record leaves that index.
SELECT idem_complete('hot', 201, 'made', '{"X": "y"}', 'records', token => :token);
SELECT count(*) FROM idempotency.in_flight_here WHERE kind = 'leased';
COMMIT;

-- The settings: default, range, unit and context.
SELECT name, boot_val, unit, min_val, max_val, enumvals, context, vartype FROM pg_settings
 WHERE name LIKE 'idempotency.%' ORDER BY name;
SELECT name, short_desc, extra_desc FROM pg_settings WHERE name LIKE 'idempotency.%' ORDER BY name;
-- The words are the server's, and differ from version to version.
\set VERBOSITY sqlstate
SET idempotency.default_ttl = 0;
SET idempotency.default_ttl = '-1s';
SET idempotency.default_ttl = 'soon';
SET idempotency.default_retention = '-1s';
SET idempotency.default_lease = 0;
SET idempotency.default_lease = '-1ms';
SET idempotency.default_wait = '-1ms';
SET idempotency.default_wait = '25h';
SET idempotency.max_body_bytes = -1;
SET idempotency.max_body_bytes = '257MB';
SET idempotency.log_events = 'some';
\set VERBOSITY default
-- The prefix is ours: a misspelt setting is an error, not a silent nothing.
SET idempotency.default_tll = '1h';
\echo :SQLSTATE
-- Units as everywhere.
SET idempotency.default_ttl = '2h';
SET idempotency.default_lease = '90s';
SET idempotency.max_body_bytes = '1MB';
SHOW idempotency.default_ttl;
SHOW idempotency.default_lease;
SHOW idempotency.max_body_bytes;
RESET ALL;
-- What decides how long a key is remembered, or when somebody may take over, is not for callers; how
-- long they are ready to wait is.
SET ROLE pg_monitor;
SET idempotency.default_ttl = '1s';
\echo :SQLSTATE
SET idempotency.default_retention = '1s';
\echo :SQLSTATE
SET idempotency.default_lease = '1ms';
\echo :SQLSTATE
SET idempotency.max_body_bytes = 0;
\echo :SQLSTATE
SET idempotency.default_wait = '1s';
\echo :SQLSTATE
RESET ROLE;
RESET idempotency.default_wait;
-- The store is not for a session at all.
SET idempotency.store = sql;
\echo :SQLSTATE
-- The rows of a view of every node: the argument says of which, and nothing else is a view.
SELECT count(*) FROM idempotency.of_nodes(NULL::idempotency.sweeper_here);
SELECT * FROM idempotency.of_nodes(1);
SELECT * FROM refused($$
SELECT * FROM idempotency.of_nodes(NULL::pg_catalog.pg_class);
SELECT * FROM idempotency.of_nodes(NULL);
$$);
