-- Promise: a later attempt never lets a key be forgotten sooner than the attempts before have said. Without a
-- ttl of its own it has that of the attempt before.
\a\pset footer off

CREATE VIEW test.memory AS SELECT key, attempt, status, extract(day FROM expires_at - claimed_at) AS ttl,
    extract(day FROM retained_until - claimed_at) AS memory FROM idempotency.record WHERE scope = 'attempts' ORDER BY key;
-- Begins an attempt with a ttl, which fails and may be tried again.
CREATE FUNCTION test.failed(key text, ttl interval) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin(key, scope => 'attempts', ttl => ttl);
    RETURN idem_fail(key, 'not yet', retryable => true, scope => 'attempts', retry_after => '0');
END $$;
SELECT idem_policy_set('attempts', ttl => '1 day', retention => '2 days', max_ttl => '60 days');

-- A retry without a ttl, with a shorter one, and with a longer one.
SELECT test.failed('none', '30 days'), test.failed('shorter', '30 days'), test.failed('longer', '30 days');
BEGIN;
SELECT outcome FROM idem_begin('none', scope => 'attempts');
SELECT outcome FROM idem_begin('shorter', scope => 'attempts', ttl => '3 days');
SELECT outcome FROM idem_begin('longer', scope => 'attempts', ttl => '90 days');
SELECT idem_complete('none', 200, 'x', scope => 'attempts'), idem_complete('shorter', 200, 'x', scope => 'attempts');
COMMIT;
SELECT * FROM test.memory;
-- The caller's shorter one counts on as well; the policy says how long the key is remembered.
SELECT test.failed('hour', '1 hour');
SELECT outcome, expires_at - now() < '2 hours' AS within_hours FROM idem_begin('hour', scope => 'attempts');
SELECT memory FROM test.memory WHERE key = 'hour';
-- A takeover, and idem_once.
SELECT outcome FROM idem_begin('silent', scope => 'attempts', ttl => '30 days', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SELECT outcome FROM idem_begin('silent', scope => 'attempts');
SELECT test.failed('once', '30 days'), idem_once('once', 'attempts');
SELECT * FROM test.memory WHERE key IN ('silent', 'once');
-- max_ttl counts for the attempts that follow.
SELECT idem_policy_set('attempts', ttl => '1 day', retention => '2 days', max_ttl => '10 days', replace => true);
SELECT test.failed('limited', '10 days');
SELECT idem_policy_set('attempts', ttl => '1 day', retention => '2 days', max_ttl => '5 days', replace => true);
SELECT outcome FROM idem_begin('limited', scope => 'attempts');
SELECT * FROM test.memory WHERE key = 'limited';
-- What has come half of the way is kept for any time. Its next attempt counts by the policy.
BEGIN;
SELECT outcome FROM idem_begin('half way', scope => 'attempts', ttl => '3 days');
SELECT idem_checkpoint('half way', 'charged', scope => 'attempts') IS NOT NULL AS noted,
       idem_fail('half way', 'not yet', retryable => true, scope => 'attempts', retry_after => '0');
COMMIT;
SELECT expires_at, retained_until FROM idempotency.record WHERE key = 'half way';
SELECT outcome FROM idem_begin('half way', scope => 'attempts');
SELECT * FROM test.memory WHERE key = 'half way';
-- A new request with the key of a forgotten one begins anew.
UPDATE idempotency.record SET expires_at = now() - interval '1 s', retained_until = now() - interval '1 s' WHERE key = 'shorter';
SELECT outcome FROM idem_begin('shorter', scope => 'attempts');
SELECT * FROM test.memory WHERE key = 'shorter';

DELETE FROM idempotency.record WHERE scope = 'attempts';
TRUNCATE idempotency.policy, idempotency.audit;
DROP VIEW test.memory;
DROP FUNCTION test.failed;
