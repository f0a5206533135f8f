-- Promise: a derived key is forgotten with its window, after any events within it. The next request is a
-- first attempt that inherits nothing, unless the earlier claim is live or its outcome is unknown.
\a\pset footer off

CREATE FUNCTION test.buy(OUT outcome text, OUT attempt integer, OUT recovery_point text, OUT state jsonb, OUT error text) LANGUAGE sql AS
    $$ SELECT outcome, attempt, recovery_point, state, error FROM idem_begin(NULL, '{"item": 1}', 'window', 'mira') $$;
CREATE VIEW test.window AS SELECT * FROM idempotency.record WHERE scope = 'window';

-- Attempts are used up.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '1 min', max_attempts => 1, keep_history => true);
SELECT outcome, attempt FROM test.buy();
SELECT idem_fail(key, 'down', retryable => true, scope => scope, principal => principal, token => token, retry_after => '0') FROM test.window;
SELECT retained_until - created_at AS window, expires_at = retained_until AS alike FROM test.window;
SELECT * FROM test.buy();
SELECT test.let_pass('1 min', 'window');
SELECT * FROM test.buy();
DELETE FROM test.window;
-- The sweeper may have it.
SELECT outcome FROM test.buy();
SELECT idem_fail(key, 'down', retryable => true, scope => scope, principal => principal, token => token) FROM test.window;
SELECT test.let_pass('1 day', 'window');
SELECT idem_cleanup();

-- Half of the way is done, and the pause is longer than the window.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '1 min', replace => true);
SELECT outcome FROM test.buy();
SELECT idem_checkpoint(key, 'charged', '{"charge": 7}', scope, principal, token) IS NOT NULL AS noted FROM test.window;
SELECT idem_fail(key, 'down', retryable => true, scope => scope, principal => principal, token => token, retry_after => '1 hour') FROM test.window;
SELECT retained_until - created_at AS window FROM test.window;
SELECT outcome FROM test.buy();
SELECT test.let_pass('1 min', 'window');
SELECT * FROM test.buy();
SELECT recovery_point, state, error FROM test.window;
DELETE FROM test.window;

-- An attempt within the window goes on, and makes it no longer.
SELECT outcome FROM test.buy();
SELECT idem_checkpoint(key, 'charged', '{"charge": 7}', scope, principal, token) IS NOT NULL AS noted FROM test.window;
SELECT idem_fail(key, 'down', retryable => true, scope => scope, principal => principal, token => token, retry_after => '0') FROM test.window;
SELECT test.let_pass('50 s', 'window');
SELECT outcome, attempt, recovery_point FROM test.buy();
SELECT retained_until - created_at AS window FROM test.window;
-- A released claim leaves the attempt before, and the window.
SELECT idem_release(key, scope, principal, token) FROM test.window;
SELECT retained_until - created_at AS window, attempt FROM test.window;
DELETE FROM test.window;

-- A ttl of idem_complete, and a retention of the policy.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '1 min', retention => '10 days', replace => true);
SELECT outcome FROM test.buy();
SELECT idem_complete(key, 201, 'made', scope => scope, principal => principal, token => token, ttl => '1 hour') FROM test.window;
SELECT retained_until - created_at AS window, expires_at = retained_until AS alike FROM test.window;
SELECT outcome FROM test.buy();
SELECT test.let_pass('1 min', 'window');
SELECT outcome, attempt FROM test.buy();
DELETE FROM test.window;
-- A caller's ttl is the window, where the policy names none.
SELECT idem_policy_set('window', on_missing_key => 'derive', retention => '10 days', replace => true);
SELECT key FROM idem_begin(NULL, '{"item": 1}', 'window', 'mira', ttl => '1 min') \gset
SELECT idem_complete(:'key', 201, 'made', scope => scope, principal => principal, token => token) FROM test.window;
SELECT test.let_pass('1 min', 'window');
SELECT outcome, attempt FROM idem_begin(NULL, '{"item": 1}', 'window', 'mira', ttl => '1 min');
DELETE FROM test.window;

-- A claim that lives is in progress, beyond the window too. Its answer is kept for another window, for
-- those who were told to wait for it.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '1 min', lease => '10 min', replace => true, reason => 'a test');
SELECT outcome FROM test.buy();
SELECT test.let_pass('2 min', 'window');
SELECT outcome FROM test.buy();
SELECT idem_complete(key, 201, 'made', scope => scope, principal => principal, token => token) FROM test.window;
SELECT outcome FROM test.buy();
SELECT test.let_pass('1 min', 'window');
SELECT outcome, attempt FROM test.buy();
DELETE FROM test.window;

-- One that is silent beyond its lease is taken over within the window; after it, its work is another
-- request's, and the attempt is kept in the history.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '10 min', lease => '1 min', keep_history => true, replace => true, reason => 'a test');
DELETE FROM idempotency.attempt WHERE scope = 'window';
SELECT outcome FROM test.buy();
SELECT idem_checkpoint(key, 'charged', '{"charge": 7}', scope, principal, token) IS NOT NULL AS noted FROM test.window;
SELECT token, key FROM test.window \gset
SELECT test.let_pass('2 min', 'window');
BEGIN;
SELECT outcome, attempt, recovery_point FROM test.buy();
ROLLBACK;
SELECT test.let_pass('8 min', 'window');
SELECT reason, execution FROM idem_explain(:'key', scope => 'window', principal => 'mira');
SELECT outcome, attempt, recovery_point, state FROM test.buy();
SELECT attempt, how FROM idem_attempts(:'key', 'window', 'mira');
SELECT idem_complete(:'key', 201, 'late', scope => 'window', principal => 'mira', token => :token);
\echo :SQLSTATE
DELETE FROM test.window;

-- An unknown record stays unknown until an operator decides; the decision is kept for a window.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '10 min', lease => '1 min', on_lease_expiry => 'unknown', replace => true, reason => 'a test');
SELECT outcome FROM test.buy();
SELECT test.let_pass('1 day', 'window');
SELECT outcome FROM test.buy();
SELECT idem_resolve(key, 'complete', scope, principal, 201, 'found') FROM test.window;
SELECT outcome FROM test.buy();
SELECT test.let_pass('10 min', 'window');
SELECT outcome, attempt FROM test.buy();
DELETE FROM test.window;

-- A key that is sent is not forgotten so: it is exhausted for its retention.
SELECT idem_policy_set('window', on_missing_key => 'derive', derive_window => '1 min', max_attempts => 1, ttl => '1 min', retention => '2 hours', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('sent', '{"item": 1}', 'window', 'mira');
SELECT idem_fail(key, 'down', retryable => true, scope => scope, principal => principal, token => token, retry_after => '0') FROM test.window;
SELECT test.let_pass('1 hour', 'window');
SELECT outcome FROM idem_begin('sent', '{"item": 1}', 'window', 'mira');
DROP VIEW test.window;
DROP FUNCTION test.buy;
DELETE FROM idempotency.record WHERE scope = 'window';
DELETE FROM idempotency.attempt WHERE scope = 'window';
SELECT idem_policy_drop('window', 'a test');
