-- Promise: a failure that may have had an effect (uncertain) is unknown where a timed-out attempt would be,
-- by the policy at the claim or the one in force now, and elsewhere a retryable failure like any other.
\a\pset footer off
SELECT idem_policy_set('uf', retry_base => '0', keep_history => true, max_attempts => 2);
SELECT idem_policy_set('uf-unknown', retry_base => '0', keep_history => true, max_attempts => 1, on_lease_expiry => 'unknown');
CREATE FUNCTION test.claimed(wanted text, in_scope text) RETURNS bigint LANGUAGE sql AS $$
    SELECT b.token FROM idem_begin(wanted, '{"amount": 5}', in_scope, 'mira') b $$;
CREATE FUNCTION test.uncertain(wanted text, in_scope text, wanted_token bigint DEFAULT NULL) RETURNS boolean LANGUAGE sql AS $$
    SELECT idem_fail(wanted, 'connection reset', retryable => true, scope => in_scope, principal => 'mira',
                     token => wanted_token, uncertain => true) $$;
CREATE FUNCTION test.states(in_scope text) RETURNS TABLE (key text, status text, attempt int, error text, reference text, leased boolean)
    LANGUAGE sql AS $$ SELECT key, status, attempt, error, reference, lease_until IS NOT NULL FROM idempotency.records
                        WHERE scope = in_scope ORDER BY key $$;

-- The statement of the clients.
PREPARE fail AS SELECT idem_fail($1::text, $2::text, retryable => true, scope => $3::text, principal => $4::text,
                                 token => $5::bigint, uncertain => $6::boolean);
SELECT test.claimed('client', 'uf-unknown') AS token \gset
EXECUTE fail('client', 'connection reset', 'uf-unknown', 'mira', :token, true);
SELECT test.claimed('clear', 'uf-unknown') AS token \gset
EXECUTE fail('clear', 'refused', 'uf-unknown', 'mira', :token, false);
SELECT test.claimed('none', 'uf-unknown') AS token \gset
EXECUTE fail('none', 'refused', 'uf-unknown', 'mira', :token, NULL);
SELECT test.claimed('client', 'uf') AS token \gset
EXECUTE fail('client', 'connection reset', 'uf', 'mira', :token, true);
SELECT * FROM test.states('uf-unknown');
SELECT * FROM test.states('uf');
SELECT k, outcome, reason FROM unnest('{clear,client,none}'::text[]) k, idem_explain(k, '{"amount": 5}', 'uf-unknown', 'mira');
SELECT attempt, how, error FROM idem_attempts('client', 'uf-unknown', 'mira');
SELECT attempt, how, error FROM idem_attempts('client', 'uf', 'mira');
-- The last attempt of a scope with takeover is a dead letter.
SELECT test.claimed('client', 'uf') AS token \gset
SELECT test.uncertain('client', 'uf', :token);
SELECT * FROM test.states('uf');

-- As after idem_unknown: said once more it is what it was, and only the outcome is still taken.
SELECT token FROM idempotency.record WHERE (scope, key) = ('uf-unknown', 'client') \gset
SELECT test.uncertain('client', 'uf-unknown', :token);
SELECT idem_unknown('client', 'again', 'ch_1', 'uf-unknown', 'mira', :token);
\set VERBOSITY terse
EXECUTE fail('client', 'refused', 'uf-unknown', 'mira', :token, false);
\echo :SQLSTATE
SELECT idem_extend('client', :token, scope => 'uf-unknown', principal => 'mira');
\echo :SQLSTATE
\set VERBOSITY default
SELECT idem_complete('client', 201, 'paid', scope => 'uf-unknown', principal => 'mira', token => :token);
SELECT test.uncertain('client', 'uf-unknown', :token);
SELECT outcome, status_code FROM idem_begin('client', '{"amount": 5}', 'uf-unknown', 'mira');

-- The policy at the claim counts, and so does the one in force now.
SELECT test.claimed('before', 'uf-unknown') AS token \gset
SELECT idem_policy_alter('uf-unknown', on_lease_expiry => 'takeover', reason => 'a test');
SELECT test.uncertain('before', 'uf-unknown', :token);
SELECT test.claimed('after', 'uf-unknown') AS token \gset
SELECT idem_policy_alter('uf-unknown', on_lease_expiry => 'unknown');
SELECT test.uncertain('after', 'uf-unknown', :token);
SELECT idem_policy_alter('uf-unknown', on_lease_expiry => 'takeover', reason => 'a test');
SELECT test.uncertain('after', 'uf-unknown', :token);
SELECT key, status FROM test.states('uf-unknown') WHERE key IN ('before', 'after');
SELECT idem_policy_alter('uf-unknown', on_lease_expiry => 'unknown');

-- A pause and a response are a retryable failure's alone.
SELECT test.claimed('pause', s) IS NOT NULL FROM unnest('{uf,uf-unknown}'::text[]) s;
SELECT idem_fail('pause', 'reset', true, 503, v.body, '{"A": "b"}', scope, principal, token, '1 hour', true)
  FROM idempotency.record, (VALUES ('later'::text)) v (body) WHERE key = 'pause' AND scope ~ '^uf';
SELECT scope, status, status_code, next_attempt_at > now() AS paused, body IS NOT NULL AS body, headers FROM idempotency.record WHERE key = 'pause' AND scope ~ '^uf' ORDER BY scope;
-- Each type of body has the argument.
SELECT test.claimed(k, 'uf-unknown') IS NOT NULL FROM unnest('{bytea,json,jsonb}'::text[]) k;
SELECT idem_fail('bytea', 'e', true, 500, 'x'::bytea, uncertain => true, scope => scope, principal => principal, token => token) FROM idempotency.record WHERE key = 'bytea' AND scope ~ '^uf';
SELECT idem_fail('json', 'e', true, 500, '{}'::json, uncertain => true, scope => scope, principal => principal, token => token) FROM idempotency.record WHERE key = 'json' AND scope ~ '^uf';
SELECT idem_fail('jsonb', 'e', true, 500, '{}'::jsonb, uncertain => true, scope => scope, principal => principal, token => token) FROM idempotency.record WHERE key = 'jsonb' AND scope ~ '^uf';
SELECT key, status FROM test.states('uf-unknown') WHERE key ~ '^(bytea|json)';

-- Within its transaction it is an end like the others, also of a claim that has to end there.
BEGIN;
SELECT outcome FROM idem_begin('open', '{"amount": 5}', 'uf-unknown', 'mira', transactional => true);
SELECT test.uncertain('open', 'uf-unknown');
SELECT outcome FROM idem_begin('open', '{"amount": 5}', 'uf-unknown', 'mira');
COMMIT;
SELECT outcome, error FROM idem_begin('open', '{"amount": 5}', 'uf-unknown', 'mira');
BEGIN;
SELECT outcome FROM idem_begin('decided', '{"amount": 5}', 'uf-unknown', 'mira');
SAVEPOINT a;
SELECT test.uncertain('decided', 'uf-unknown');
ROLLBACK TO a;
SELECT test.uncertain('decided', 'uf-unknown');
SELECT idem_complete('decided', 200, scope => 'uf-unknown', principal => 'mira');
COMMIT;
SELECT outcome FROM idem_begin('decided', '{"amount": 5}', 'uf-unknown', 'mira');
BEGIN;
SELECT outcome FROM idem_begin('open', '{"amount": 5}', 'uf', 'mira', transactional => true);
SELECT test.uncertain('open', 'uf');
COMMIT;
SELECT outcome, attempt FROM idem_begin('open', '{"amount": 5}', 'uf', 'mira');

-- A holder that comes late.
SELECT test.claimed('late', 'uf-unknown') AS token \gset
SELECT test.let_pass('1 day', 'uf-unknown');
SELECT outcome, error FROM idem_begin('late', '{"amount": 5}', 'uf-unknown', 'mira');
SELECT test.uncertain('late', 'uf-unknown', :token);
SELECT outcome, error FROM idem_begin('late', '{"amount": 5}', 'uf-unknown', 'mira');
-- After its last attempt, silent and stored as exhausted.
SELECT test.claimed('spent', 'uf') AS token \gset
SELECT test.uncertain('spent', 'uf', :token);
SELECT test.claimed('spent', 'uf') AS token \gset
SELECT test.let_pass('1 day', 'uf');
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT key, status FROM test.states('uf') WHERE key = 'spent';
SELECT test.uncertain('spent', 'uf', :token);
SELECT key, status, error FROM test.states('uf') WHERE key = 'spent';

-- A final failure can't be uncertain.
SELECT idem_fail('x', uncertain => true);
\echo :SQLSTATE
SELECT idem_fail('x', retryable => NULL, uncertain => true);
\set VERBOSITY terse
SELECT test.uncertain('none', 'uf');
\echo :SQLSTATE
\set VERBOSITY default

DEALLOCATE fail;
DELETE FROM idempotency.record WHERE scope LIKE 'uf%';
DROP FUNCTION test.claimed, test.uncertain, test.states;
SELECT idem_policy_drop('uf', 'a test'), idem_policy_drop('uf-unknown', 'a test');
