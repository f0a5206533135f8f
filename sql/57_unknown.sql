-- Promise: an attempt with an unknown outcome is ended with idem_unknown, and only its token or an
-- operator can decide it afterwards.
\a\pset footer off
SELECT idem_policy_set('un', max_attempts => 3, retry_base => '0', keep_history => true, ttl => '1 hour', retention => '1 day',
                       abandon_after => '1 hour', on_abandon => 'release');
-- Where silence is taken over, and even where no attempt would be left.
CREATE FUNCTION test.lost(wanted text, in_scope text DEFAULT 'un') RETURNS bigint LANGUAGE sql AS $$
    SELECT b.token FROM idem_begin(wanted, '{"amount": 5}', in_scope, holder => 'worker 1') b $$;
SELECT test.lost('lost') AS token \gset
SELECT idem_unknown('lost', 'timeout waiting for the bank', 'ch_123', 'un', token => :token);
SELECT test.seen(b) FROM idem_begin('lost', '{"amount": 5}', 'un') b;
SELECT retry_after FROM idem_begin('lost', '{"amount": 5}', 'un');
SELECT outcome FROM idem_begin('lost', '{"amount": 6}', 'un');
SELECT test.seen(g) FROM idem_get('lost', 'un') g;
SELECT outcome, reason, retry_after, record ->> 'status' AS status, record ->> 'error' AS error, record ->> 'reference' AS reference,
       record ? 'removable_at' AS removable, lease FROM idem_explain('lost', scope => 'un');
SELECT key, status, error, reference, lease_until, finished_at IS NOT NULL AS finished FROM idempotency.records WHERE scope = 'un';
SELECT key, attempt, holder, error, reference, silent, age >= '0' AS aged FROM idempotency.unknown WHERE scope = 'un';
SELECT attempt, how, holder, error, reference FROM idem_attempts('lost', 'un');
SELECT count(*) FROM idempotency.abandoned WHERE scope = 'un';
SELECT count(*) FROM idempotency.in_flight WHERE scope = 'un';
-- Repeated, it changes nothing.
SELECT idem_unknown('lost', 'again', 'ch_456', 'un', token => :token);
SELECT error, reference FROM idem_get('lost', 'un');
\set VERBOSITY terse
SELECT idem_once('lost', 'un');
\echo :SQLSTATE
\set VERBOSITY default

-- The token has no lease.
SELECT * FROM refused($$
SELECT idem_extend('lost', :token, scope => 'un');
SELECT idem_checkpoint('lost', 'sent', scope => 'un', token => :token);
SELECT idem_release('lost', 'un', token => :token);
SELECT idem_fail('lost', 'no', true, scope => 'un', token => :token);
SELECT idem_unknown('lost', scope => 'un');
SELECT idem_complete('lost', 200, scope => 'un', token => :token - 1);
SELECT idem_unknown('lost', scope => 'un', token => :token - 1);
SELECT idem_unknown('no such key', scope => 'un', token => :token);
SELECT idem_unknown(NULL);
$$, :token);

-- Neither age nor abandon_after ends it, and no policy that comes later.
SELECT test.let_pass('10 years', 'un');
SELECT idem_cleanup();
SELECT outcome FROM idem_begin('lost', '{"amount": 5}', 'un');
SELECT outcome FROM idem_begin('lost', '{"amount": 6}', 'un');
SELECT outcome FROM idem_begin('lost', '{"amount": 5}', 'un', first_sent => now() - interval '20 years');
SELECT rows FROM idempotency.backlog(now());

-- Each way out: its token, and an operator.
SELECT idem_complete('lost', 201, 'paid', scope => 'un', token => :token);
SELECT outcome, status_code, convert_from(body, 'UTF8') AS body, error, reference FROM idem_begin('lost', '{"amount": 5}', 'un');
SELECT status, error, reference FROM idem_get('lost', 'un');
SELECT attempt, how, error, reference FROM idem_attempts('lost', 'un');
SELECT idem_complete('lost', 201, 'paid', scope => 'un', token => :token);
SELECT idem_unknown('lost', scope => 'un', token => :token);
SELECT expires_at > now() + interval '29 min' AS replayed, retained_until > now() + interval '1 hour' AS kept FROM idempotency.record WHERE (scope, key) = ('un', 'lost');

SELECT test.lost('failed') AS token \gset
SELECT idem_unknown('failed', reference => 'ch_1', scope => 'un', token => :token);
SELECT idem_fail('failed', 'declined', status_code => 402, scope => 'un', token => :token);
SELECT outcome, status, status_code, error FROM idem_begin('failed', '{"amount": 5}', 'un');
SELECT idem_unknown('failed', scope => 'un', token => :token);

SELECT count(test.lost(k)) FROM unnest('{released,completed,refused}'::text[]) k;
SELECT idem_unknown(k, 'timeout', 'ch_' || k, 'un', token => r.token)
  FROM unnest('{released,completed,refused}'::text[]) k JOIN idempotency.record r ON (r.scope, r.key) = ('un', k);
SELECT idem_resolve('released', 'release', 'un', reason => 'the bank knows nothing');
SELECT idem_resolve('completed', 'complete', 'un', status_code => 200, body => 'found');
SELECT idem_resolve('refused', 'fail', 'un', error => 'refused');
SELECT key, status, error, reference, resolved_by IS NOT NULL AS resolved FROM idempotency.records
 WHERE scope = 'un' AND key IN ('released', 'completed', 'refused') ORDER BY key;
SELECT outcome, attempt, error, reference FROM idem_begin('released', '{"amount": 5}', 'un');
SELECT reference FROM idem_get('released', 'un');
SELECT attempt, how, error, reference, resolved_by IS NOT NULL AS resolved FROM idem_attempts('released', 'un');
SELECT action, before ->> 'status' AS before, after ->> 'status' AS after, reason FROM idempotency.decisions
 WHERE scope = 'un' AND action <> 'policy_set' ORDER BY key;

-- It may be forgotten, as any record without a running attempt.
SELECT test.lost('forgotten') AS token \gset
SELECT idem_unknown('forgotten', scope => 'un', token => :token);
SELECT idem_forget('forgotten', 'un');
SELECT count(*) FROM idem_attempts('forgotten', 'un');

-- In the transaction of the claim: an end like the others, the effects commit.
CREATE TABLE test.effect (what text);
BEGIN;
SELECT outcome FROM idem_begin('own', '{"amount": 5}', 'un');
INSERT INTO test.effect VALUES ('own');
SELECT idem_unknown('own', 'timeout', 'ch_own', 'un');
SELECT outcome FROM idem_begin('own', '{"amount": 5}', 'un');
SELECT idem_unknown('own', 'again', scope => 'un');
COMMIT;
SELECT outcome FROM idem_begin('own', '{"amount": 5}', 'un');
SELECT what FROM test.effect;
-- And there it is known again, or not, before the commit; no token is needed.
BEGIN;
SELECT outcome FROM idem_begin('known', '{"amount": 5}', 'un');
SELECT idem_unknown('known', 'timeout', 'ch_known', 'un');
SAVEPOINT a;
\set VERBOSITY terse
SELECT idem_extend('known', NULL, scope => 'un');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT idem_checkpoint('known', 'p', scope => 'un');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT idem_release('known', 'un');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT idem_fail('known', 'x', true, scope => 'un');
\echo :SQLSTATE
ROLLBACK TO a;
\set VERBOSITY default
SELECT idem_complete('known', 200, 'found', scope => 'un');
SELECT idem_complete('known', 200, 'found', scope => 'un');
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_begin('known', '{"amount": 5}', 'un');
ROLLBACK TO a;
SELECT outcome FROM idem_begin('known', '{"amount": 5}', 'un');
SELECT idem_fail('known', 'declined', scope => 'un');
COMMIT;
SELECT outcome, status, error FROM idem_begin('known', '{"amount": 5}', 'un');
SELECT attempt, how, error, reference FROM idem_attempts('known', 'un');
-- A rollback to a savepoint undoes it, and the claim is open again.
BEGIN;
SELECT outcome FROM idem_begin('undone', '{"amount": 5}', 'un');
SAVEPOINT a;
SELECT idem_unknown('undone', scope => 'un');
ROLLBACK TO a;
SELECT outcome FROM idem_begin('undone', '{"amount": 5}', 'un');
SELECT idem_complete('undone', 200, scope => 'un');
COMMIT;
SELECT outcome FROM idem_begin('undone', '{"amount": 5}', 'un');
SELECT test.lost('undone too') AS token \gset
BEGIN;
SAVEPOINT a;
SELECT idem_unknown('undone too', scope => 'un', token => :token);
ROLLBACK TO a;
SELECT idem_extend('undone too', :token, scope => 'un') > now() AS leased;
ROLLBACK;
BEGIN;
SELECT idem_unknown('undone too', scope => 'un', token => :token);
ROLLBACK;
SELECT outcome FROM idem_begin('undone too', '{"amount": 5}', 'un');
-- A prepared transaction carries it.
BEGIN;
SELECT outcome FROM idem_begin('prepared', '{"amount": 5}', 'un');
SELECT idem_unknown('prepared', 'timeout', 'ch_2', 'un');
PREPARE TRANSACTION 'unknown';
SELECT outcome FROM idem_begin('prepared', '{"amount": 5}', 'un');
COMMIT PREPARED 'unknown';
SELECT outcome FROM idem_begin('prepared', '{"amount": 5}', 'un');
-- Not from within an operation, as no other end.
CREATE FUNCTION public.ends_itself(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(idem_unknown('operated', scope => 'un')) $$;
\set VERBOSITY terse
SELECT outcome FROM idem_execute('operated', 'public.ends_itself(jsonb)', '{}', 'un');
\echo :SQLSTATE
\set VERBOSITY default
DROP FUNCTION public.ends_itself;

-- A late holder: its lease has expired, and no caller has taken over.
SELECT test.lost('late') AS token \gset
SELECT test.let_pass('50 min', 'un');
SELECT idem_unknown('late', 'timeout', 'ch_3', 'un', token => :token);
SELECT outcome FROM idem_begin('late', '{"amount": 5}', 'un');

-- Many at once; the policy's on_lease_expiry => 'unknown' is unchanged.
SELECT idem_policy_set('un-silent', on_lease_expiry => 'unknown', unknown_retry_after => '5 min', max_attempts => 1);
SELECT test.lost(k, 'un-silent') IS NOT NULL FROM unnest('{silent,told}'::text[]) k;
SELECT idem_unknown('told', 'timeout', 'ch_4', 'un-silent', token => token) FROM idempotency.record WHERE (scope, key) = ('un-silent', 'told');
SELECT test.let_pass('1 hour', 'un-silent');
SELECT key, status FROM idempotency.records WHERE scope = 'un-silent' ORDER BY key;
SELECT k, outcome, retry_after, reason FROM unnest('{silent,told}'::text[]) k, idem_explain(k, '{"amount": 5}', 'un-silent');
SELECT key, silent, reference FROM idempotency.unknown WHERE scope = 'un-silent' ORDER BY key;
SELECT key, status FROM idempotency.abandoned WHERE scope = 'un-silent';
SELECT count(*) FROM idempotency.exhausted WHERE scope = 'un-silent';
SELECT idem_cleanup() >= 0 AS cleaned;
CALL idem_resolve_all('complete', scope => 'un-silent', status => 'unknown', status_code => 200);
SELECT key, status, status_code FROM idempotency.records WHERE scope = 'un-silent' ORDER BY key;

-- The provider's reference is for roles that may read the whole record.
SELECT test.lost('watched') AS token \gset
SELECT idem_unknown('watched', 'timeout at the bank', 'ch_5', 'un', token => :token);
CREATE ROLE test_unknown_monitor IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA test TO test_unknown_monitor;
SET ROLE test_unknown_monitor;
SELECT key, status FROM idempotency.records WHERE (scope, key) = ('un', 'watched');
SELECT key, error, reference FROM idempotency.unknown WHERE (scope, key) = ('un', 'watched');
\set VERBOSITY terse
SELECT reference FROM idempotency.records;
SELECT reference FROM idempotency.attempts;
\set VERBOSITY default
RESET ROLE;
REVOKE USAGE ON SCHEMA test FROM test_unknown_monitor;
DROP ROLE test_unknown_monitor;

-- The bounds of the option.
\set VERBOSITY terse
SELECT idem_policy_set('un-bounds', unknown_retry_after => '0');
\echo :SQLSTATE
\set VERBOSITY default
DROP TABLE test.effect;
DROP FUNCTION test.lost;
DELETE FROM idempotency.record WHERE scope LIKE 'un%';
SELECT idem_policy_drop('un', 'a test'), idem_policy_drop('un-silent', 'a test');
