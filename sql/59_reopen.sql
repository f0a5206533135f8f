-- Promise: an operator reopens failed or exhausted records, one or many, with a reason. A record in its
-- pause is left alone unless the call asks for it.
\a\pset footer off
SELECT idem_policy_set('redrive', max_attempts => 1, retry_base => '1 hour', retry_cap => '1 hour', keep_history => true);
CREATE FUNCTION test.came_about(wanted text, retryable boolean, of_scope text DEFAULT 'redrive') RETURNS boolean LANGUAGE sql AS $$
    SELECT idem_fail(wanted, 'error of ' || wanted, retryable, 402, 'no', scope => of_scope, token => b.token) FROM idem_begin(wanted, '{"amount": 5}', of_scope) b $$;
SELECT test.came_about('failed', false), test.came_about('exhausted', true);
SELECT key, status, error, status_code FROM idempotency.records WHERE scope = 'redrive' ORDER BY key;
-- Not without a reason, and not other records.
SELECT * FROM refused($$
SELECT idem_resolve('failed', 'reopen', 'redrive');
SELECT idem_resolve('failed', 'reopen', 'redrive', reason => '  ');
$$);
CALL idem_resolve_all('reopen', '', 'redrive', status => 'failed');
\echo :SQLSTATE
SELECT * FROM refused($$
SELECT idem_resolve('failed', 'release', 'redrive', reason => 'r');
SELECT idem_resolve('failed', 'reopen', 'redrive', reason => 'r', status_code => 200);
$$);
SELECT token FROM idem_begin('done', '{"amount": 5}', 'redrive') \gset
\set VERBOSITY terse
SELECT idem_resolve('done', 'reopen', 'redrive', reason => 'r');
\echo :SQLSTATE
SELECT idem_complete('done', 200, scope => 'redrive', token => :token);
SELECT idem_resolve('done', 'reopen', 'redrive', reason => 'r');
\echo :SQLSTATE
\set VERBOSITY default

SELECT idem_resolve('failed', 'reopen', 'redrive', reason => 'the bank was down');
SELECT idem_resolve('exhausted', 'reopen', 'redrive', reason => 'the bank was down', error => 'was busy');
SELECT key, status, error, resolved_by IS NOT NULL AS resolved FROM idempotency.records WHERE scope = 'redrive' AND key <> 'done' ORDER BY key;
-- A record that is open for execution has no result.
SELECT k, (idem_get(k, 'redrive')).status_code, (idem_get(k, 'redrive')).body FROM unnest('{failed,exhausted}'::text[]) k;
SELECT action, key, before ->> 'status' AS before, after ->> 'status' AS after, reason FROM idempotency.decisions WHERE scope = 'redrive' AND action = 'reopen' ORDER BY key;
-- One more attempt at least, which may be the last one again.
SELECT outcome, attempt, error FROM idem_begin('failed', '{"amount": 6}', 'redrive');
SELECT outcome, attempt, error FROM idem_begin('failed', '{"amount": 5}', 'redrive');
SELECT token FROM idem_begin('exhausted', '{"amount": 5}', 'redrive') \gset
SELECT idem_fail('exhausted', 'still busy', true, scope => 'redrive', token => :token);
SELECT outcome, status, error FROM idem_begin('exhausted', '{"amount": 5}', 'redrive');
-- A release without an error keeps the last one, too.
SELECT idem_resolve('exhausted', 'release', 'redrive');
SELECT outcome, attempt, error FROM idem_begin('exhausted', '{"amount": 5}', 'redrive');
SELECT attempt, how, error, resolved_by IS NOT NULL AS resolved FROM idem_attempts('exhausted', 'redrive');

-- In bulk.
SELECT idem_policy_set('bulk', max_attempts => 1, keep_history => true);
SELECT idem_policy_set('bulk-pause', max_attempts => 5, retry_base => '1 hour', retry_cap => '1 hour', retry_jitter => 'none');
SELECT test.came_about('failed', false, 'bulk'), test.came_about('exhausted', true, 'bulk'), test.came_about('pause', true, 'bulk-pause');
SELECT outcome FROM idem_begin('silent', '{"amount": 5}', 'bulk');
SELECT test.let_pass('10 min', 'bulk');
\set VERBOSITY terse
CALL idem_resolve_all('reopen', scope => 'bulk*');
\echo :SQLSTATE
\set VERBOSITY default
CREATE VIEW test.bulk AS SELECT key, status, error FROM idempotency.records WHERE scope LIKE 'bulk%' ORDER BY key;
TABLE test.bulk;
CALL idem_resolve_all('release', 'all', scope => 'bulk*', status => 'failed');
CALL idem_resolve_all('reopen', 'all', scope => 'bulk*', status => 'retryable');
CALL idem_resolve_all('release', 'dead letters', scope => 'bulk*', status => 'exhausted');
TABLE test.bulk;
CALL idem_resolve_all('reopen', 'failures', scope => 'bulk*');
TABLE test.bulk;
CALL idem_resolve_all('reopen', 'failures', scope => 'bulk*');
-- A record in its pause runs again by itself; an operator can release it at once.
CALL idem_resolve_all('release', scope => 'bulk*');
SELECT outcome FROM idem_begin('pause', '{"amount": 5}', 'bulk-pause');
CALL idem_resolve_all('release', scope => 'bulk*', status => 'retryable');
SELECT outcome, attempt, error FROM idem_begin('pause', '{"amount": 5}', 'bulk-pause');
SELECT action, reason, before ->> 'status' AS before, count(*) FROM idempotency.decisions WHERE scope LIKE 'bulk%' AND action <> 'policy_set' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT key, how, resolved_by IS NOT NULL AS resolved FROM idempotency.attempts WHERE scope = 'bulk' ORDER BY key, ended;

DELETE FROM idempotency.record WHERE scope LIKE 'bulk%' OR scope = 'redrive';
SELECT idem_policy_drop(s) FROM unnest('{redrive,bulk,bulk-pause}'::text[]) s;
DROP VIEW test.bulk;
DROP FUNCTION test.came_about;
