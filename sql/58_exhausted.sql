-- Promise: a record without attempts left is exhausted in every view, ages like a failure, and is executed
-- again only when an operator reopens it.
\a\pset footer off
CREATE FUNCTION test.dead(in_scope text) RETURNS TABLE (key text, status text, attempt integer, error text, lease boolean, finished boolean, kept boolean) LANGUAGE sql AS $$
    SELECT r.key, r.status, r.attempt, r.error, r.lease_until IS NOT NULL, r.finished_at IS NOT NULL, r.retained_until - r.finished_at > '23 hours'
      FROM idempotency.records r WHERE scope = in_scope ORDER BY key $$;
CREATE FUNCTION test.attempt(wanted text, in_scope text) RETURNS bigint LANGUAGE sql AS $$
    SELECT b.token FROM idem_begin(wanted, '{"amount": 5}', in_scope) b $$;
SELECT idem_cleanup() \gset
SELECT idem_policy_set('dead', max_attempts => 2, retry_base => '0', keep_history => true, ttl => '1 hour', retention => '1 day');

-- An attempt fails: the last one has it exhausted, and from then its retention counts.
SELECT test.attempt('fails', 'dead') AS token \gset
SELECT idem_fail('fails', 'busy', true, scope => 'dead', token => :token);
SELECT test.let_pass('50 min', 'dead');
SELECT test.attempt('fails', 'dead') AS token \gset
SELECT idem_checkpoint('fails', 'half', scope => 'dead', token => :token) > now() AS noted;
SELECT test.let_pass('20 min', 'dead');
SELECT idem_fail('fails', 'busy again', true, scope => 'dead', token => :token);
SELECT idem_fail('fails', 'busy again', true, scope => 'dead', token => :token);
SELECT idem_complete('fails', 200, scope => 'dead', token => :token);
SELECT * FROM test.dead('dead');
SELECT outcome, status, error, retry_after FROM idem_begin('fails', '{"amount": 5}', 'dead');
SELECT outcome FROM idem_begin('fails', '{"amount": 6}', 'dead');
SELECT outcome, reason, record ->> 'status' AS status FROM idem_explain('fails', scope => 'dead');
SELECT attempt, how, error FROM idem_attempts('fails', 'dead');
SELECT key, attempt, error, silent, recovery_point, retained_until > now() AS kept FROM idempotency.exhausted WHERE scope = 'dead';
-- Raising the limit does not revive it.
SELECT idem_policy_alter('dead', max_attempts => 9);
SELECT outcome FROM idem_begin('fails', '{"amount": 5}', 'dead');
SELECT idem_policy_alter('dead', max_attempts => 2);
-- It is exhausted until the retention ends, never expired, and then forgotten.
SELECT test.let_pass('23 hours', 'dead');
SELECT outcome FROM idem_begin('fails', '{"amount": 5}', 'dead');
SELECT idem_cleanup();
SELECT test.let_pass('2 hours', 'dead');
SELECT idem_cleanup();
SELECT * FROM test.dead('dead');

-- A timed-out attempt: it is exhausted immediately in every look, and then stored.
SELECT test.attempt('silent', 'dead') AS token \gset
SELECT idem_fail('silent', 'the first failed', true, scope => 'dead', token => :token);
SELECT test.attempt('silent', 'dead') AS token \gset
SELECT test.let_pass('10 min', 'dead');
SELECT * FROM test.dead('dead');
SELECT outcome, status FROM idem_begin('silent', '{"amount": 5}', 'dead');
SELECT outcome, reason, record ->> 'status' AS status FROM idem_explain('silent', scope => 'dead');
SELECT key, silent, retained_until FROM idempotency.exhausted WHERE scope = 'dead';
SELECT key, status FROM idempotency.abandoned WHERE scope = 'dead';
SELECT attempt, how, error FROM idem_attempts('silent', 'dead');
SELECT idem_policy_alter('dead', max_attempts => 9);
SELECT outcome FROM idem_begin('silent', '{"amount": 5}', 'dead');
SELECT idem_policy_alter('dead', max_attempts => 2);
SELECT idem_cleanup();
SELECT * FROM test.dead('dead');
SELECT outcome, status FROM idem_begin('silent', '{"amount": 5}', 'dead');
SELECT outcome, reason, record ->> 'status' AS status, record ? 'removable_at' AS removable FROM idem_explain('silent', scope => 'dead');
SELECT key, silent, retained_until > now() AS kept FROM idempotency.exhausted WHERE scope = 'dead';
SELECT key, status FROM idempotency.abandoned WHERE scope = 'dead';
SELECT attempt, how, error FROM idem_attempts('silent', 'dead');
SELECT idem_cleanup();
-- Its holder comes late: its lease has expired, and it may still record the result.
SELECT * FROM refused($$
SELECT idem_extend('silent', :token, scope => 'dead');
SELECT idem_checkpoint('silent', 'p', scope => 'dead', token => :token);
SELECT idem_release('silent', 'dead', token => :token);
$$, :token);
BEGIN;
SELECT idem_fail('silent', 'busy', true, scope => 'dead', token => :token);
SELECT * FROM test.dead('dead');
ROLLBACK;
BEGIN;
SELECT idem_fail('silent', 'declined', scope => 'dead', token => :token);
SELECT * FROM test.dead('dead');
ROLLBACK;
BEGIN;
SELECT idem_unknown('silent', 'timeout', 'ch_1', 'dead', token => :token);
SELECT * FROM test.dead('dead');
ROLLBACK;
SELECT idem_complete('silent', 200, 'late', scope => 'dead', token => :token);
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_begin('silent', '{"amount": 5}', 'dead');
SELECT expires_at - now() <= '1 hour' AS ttl, retained_until - now() <= '1 day' AS retention FROM idempotency.record WHERE (scope, key) = ('dead', 'silent');
SELECT attempt, how FROM idem_attempts('silent', 'dead');

-- A silent one ages, too.
SELECT test.attempt('aged', 'dead') IS NOT NULL;
SELECT test.let_pass('10 min', 'dead');
SELECT test.attempt('aged', 'dead') IS NOT NULL;
SELECT test.let_pass('10 min', 'dead');
SELECT idem_cleanup();
SELECT test.let_pass('23 hours', 'dead');
SELECT idem_cleanup();
SELECT outcome FROM idem_begin('aged', '{"amount": 5}', 'dead');
SELECT test.let_pass('2 hours', 'dead');
SELECT outcome FROM idem_begin('aged', '{"amount": 5}', 'dead', first_sent => now() - interval '3 days');
SELECT idem_cleanup();
SELECT attempt, outcome FROM idem_begin('aged', '{"amount": 5}', 'dead');

-- With on_lease_expiry => unknown it is never exhausted; and abandon_after decides first where it is set.
SELECT idem_policy_set('dead-unknown', max_attempts => 1, on_lease_expiry => 'unknown');
SELECT idem_policy_set('dead-fail', max_attempts => 1, abandon_after => '1 hour', on_abandon => 'fail');
SELECT idem_policy_set('dead-release', max_attempts => 1, abandon_after => '1 hour', on_abandon => 'release');
SELECT count(test.attempt('k', s)) FROM unnest('{dead-unknown,dead-fail,dead-release}'::text[]) s;
SELECT test.let_pass('10 min', s) FROM unnest('{dead-unknown,dead-fail,dead-release}'::text[]) s;
SELECT idem_cleanup();
SELECT s, d.* FROM unnest('{dead-unknown,dead-fail,dead-release}'::text[]) s, test.dead(s) d;
SELECT test.let_pass('2 hours', s) FROM unnest('{dead-unknown,dead-fail,dead-release}'::text[]) s;
SELECT idem_cleanup();
SELECT s, d.* FROM unnest('{dead-unknown,dead-fail,dead-release}'::text[]) s, test.dead(s) d;

DELETE FROM idempotency.record WHERE scope LIKE 'dead%';
SELECT idem_policy_drop(s, 'a test') FROM unnest('{dead,dead-unknown,dead-fail,dead-release}'::text[]) s;
DROP FUNCTION test.dead, test.attempt;

-- Within its transaction a claim is in progress, however long it takes.
SELECT idem_policy_set('long', max_attempts => 1);
BEGIN;
SELECT outcome FROM idem_begin('own', scope => 'long', lease => '1 us');
SELECT outcome, status FROM idem_begin('own', scope => 'long');
SELECT reason, record ->> 'status' AS status FROM idem_explain('own', scope => 'long');
ROLLBACK;
SELECT idem_policy_drop('long');
