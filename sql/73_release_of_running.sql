-- Promise: idem_resolve releases no claim whose lease is alive, unless it says so. The refusal names the
-- holder and the end of the lease; the history and the audit say that a holder was cut off.
\a\pset footer off

SELECT idem_policy_set('running', keep_history => true);
SELECT token FROM idem_begin('k', scope => 'running', principal => 'shop', lease => '1 hour', holder => 'worker-3') \gset
SELECT outcome FROM unnest('{nameless,held}'::text[]) k, idem_begin(k, scope => 'running', lease => '1 hour', hold => k = 'held');
CREATE FUNCTION test.release(key text, principal text, even boolean, OUT code text, OUT error text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_resolve(key, 'release', 'running', principal, reason => 'the worker hangs', even_if_running => even);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, error = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    SELECT replace(replace(detail, to_char(lease_until, 'YYYY-MM-DD'), 'DAY'), 'backend ' || pg_backend_pid(), 'backend PID') INTO detail
      FROM idempotency.record r WHERE (r.key, r.scope, r.principal) = (release.key, 'running', release.principal);
    detail := regexp_replace(detail, 'ends at .*\.$', 'ends at ...');
END $$;
SELECT * FROM test.release('k', 'shop', false);
SELECT * FROM test.release('k', 'shop', NULL);
SELECT * FROM test.release('nameless', '', false);
SELECT * FROM test.release('held', '', false);
-- It says when, in the session's time zone.
DO $$
DECLARE detail text;
BEGIN
    PERFORM idem_resolve('k', 'release', 'running', 'shop');
EXCEPTION WHEN object_in_use THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RAISE NOTICE 'the end of the lease: %', (SELECT date_trunc('second', r.lease_until) = date_trunc('second', substring(detail FROM 'ends at (.*)\.')::timestamptz)
                                               FROM idempotency.record r WHERE (r.key, r.scope) = ('k', 'running'));
END $$;
-- The claim is as it was.
SELECT idem_extend('k', :token, '1 hour', 'running', 'shop') > now() + interval '59 min' AS extended;

-- It goes with no other action; these end a live claim as before, and nothing runs again.
SELECT * FROM refused($$
SELECT idem_resolve('k', 'complete', 'running', 'shop', even_if_running => true);
SELECT idem_resolve('k', 'fail', 'running', 'shop', even_if_running => true);
SELECT idem_resolve('k', 'reopen', 'running', 'shop', reason => 'r', even_if_running => true);
SELECT idem_resolve('k', 'reopen', 'running', 'shop', reason => 'r');
SELECT idem_resolve('absent', 'release', 'running', 'shop', even_if_running => true);
$$);
SELECT idem_resolve('held', 'complete', 'running', status_code => 204), idem_resolve('nameless', 'fail', 'running', error => 'no');

-- With it: the old token is void, and the next caller executes.
SELECT idem_resolve('k', 'release', 'running', 'shop', error => 'hangs', reason => 'the worker hangs', even_if_running => true);
SELECT idem_complete('k', 200, 'late', scope => 'running', principal => 'shop', token => :token);
\echo :SQLSTATE
SELECT outcome, attempt FROM idem_begin('k', scope => 'running', principal => 'shop', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
-- A lease that is over needs it not, and may have it.
SELECT idem_resolve('k', 'release', 'running', 'shop', even_if_running => true);
SELECT outcome, attempt FROM idem_begin('k', scope => 'running', principal => 'shop', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SELECT idem_resolve('k', 'release', 'running', 'shop');
SELECT attempt, how, error, resolved_by = session_user AS by_us FROM idempotency.attempts WHERE scope = 'running' AND key = 'k' ORDER BY ended;
SELECT action, before, after, reason FROM idempotency.decisions WHERE scope = 'running' AND action <> 'policy_set' ORDER BY decided_at;

-- Many at once leave what runs.
SELECT outcome FROM idem_begin('many', scope => 'running', lease => '1 hour');
SELECT idem_resolve_idle('many', 'release', 'running');
CALL idem_resolve_all('release', 'r', scope => 'running', status => 'in_progress');

DELETE FROM idempotency.record WHERE scope = 'running';
DELETE FROM idempotency.attempt WHERE scope = 'running';
TRUNCATE idempotency.policy, idempotency.audit;
DROP FUNCTION test.release;
