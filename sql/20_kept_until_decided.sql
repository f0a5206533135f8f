-- Records with work half done, or that need a decision, are not forgotten by age.
\a\pset footer off
\set VERBOSITY default
SELECT idem_policy_set('kept', ttl => '1 min', retry_base => '0', retry_cap => '0');
SELECT idem_policy_set('kept-2', ttl => '1 min', retry_base => '0', retry_cap => '0', max_attempts => 1);

-- A recovery point: another payload must not begin afresh, and the first one goes on.
SELECT token FROM idem_begin('charged', '{"amount": 5}', 'kept') \gset
SELECT idem_checkpoint('charged', 'charged', '{"n": 1}', 'kept', token => :token) IS NOT NULL AS noted;
SELECT idem_fail('charged', 'mail down', true, scope => 'kept', token => :token);
SELECT test.let_pass('1 year', 'kept');
SELECT idem_cleanup();
SELECT b.outcome, b.expires_at, g.expires_at FROM idem_begin('charged', '{"amount": 6}', 'kept') b, idem_get('charged', 'kept') g;
SELECT status, expires_at, retained_until FROM idempotency.records WHERE (scope, key) = ('kept', 'charged');
SELECT outcome, attempt, recovery_point, state, expires_at < now() + interval '2 min' AS expires
  FROM idem_begin('charged', '{"amount": 5}', 'kept');
-- Once it is completed it ages like any other.
SELECT idem_complete(key, 200, scope => scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('kept', 'charged');
SELECT test.let_pass('1 year', 'kept');
SELECT idem_cleanup();

-- The same for one that was given back.
SELECT token FROM idem_begin('given back', '{"amount": 5}', 'kept') \gset
SELECT idem_checkpoint('given back', 'charged', NULL, 'kept', token => :token) IS NOT NULL AS noted;
SELECT idem_fail('given back', 'mail down', true, scope => 'kept', token => :token);
SELECT token, attempt FROM idem_begin('given back', '{"amount": 5}', 'kept') \gset
SELECT idem_release('given back', 'kept', token => :token);
SELECT test.let_pass('1 year', 'kept');
SELECT idem_cleanup();
SELECT outcome, recovery_point FROM idem_begin('given back', '{"amount": 5}', 'kept');

-- Without one, a failed attempt is forgotten by age.
SELECT token FROM idem_begin('plain', '{"amount": 5}', 'kept') \gset
SELECT idem_fail('plain', 'mail down', true, scope => 'kept', token => :token);
SELECT test.let_pass('1 year', 'kept');
SELECT outcome, attempt FROM idem_begin('plain', '{"amount": 6}', 'kept');

-- Exhausted, by failing or by silence.
SELECT token FROM idem_begin('failed', '{"amount": 5}', 'kept-2') \gset
SELECT idem_fail('failed', 'mail down', true, scope => 'kept-2', token => :token);
SELECT outcome FROM idem_begin('silent', '{"amount": 5}', 'kept-2');
SELECT test.let_pass('1 year', 'kept-2');
SELECT idem_cleanup();
SELECT k, outcome FROM unnest('{failed,silent}'::text[]) k, idem_begin(k, '{"amount": 5}', 'kept-2');
SELECT k, outcome FROM unnest('{failed,silent}'::text[]) k, idem_begin(k, '{"amount": 6}', 'kept-2');
-- An operator's decision is a fresh answer, with a life of its own.
SELECT k, idem_resolve(k, 'fail', 'kept-2', error => 'by hand') FROM unnest('{failed,silent}'::text[]) k;
SELECT k, outcome, expires_at < now() + interval '2 min' AS expires
  FROM unnest('{failed,silent}'::text[]) k, idem_begin(k, '{"amount": 5}', 'kept-2');
-- Allowed once more, and no more.
SELECT token FROM idem_begin('again', '{"amount": 5}', 'kept-2') \gset
SELECT idem_fail('again', 'mail down', true, scope => 'kept-2', token => :token);
SELECT idem_resolve('again', 'release', 'kept-2');
SELECT outcome, attempt FROM idem_begin('again', '{"amount": 5}', 'kept-2');
SELECT test.let_pass('1 year', 'kept-2');
SELECT outcome FROM idem_begin('again', '{"amount": 5}', 'kept-2');

-- lock_timeout ends a wait for a lease as it ends one for a lock.
SELECT outcome FROM idem_begin('leased', scope => 'kept', lease => '1 hour');
SET lock_timeout = '50 ms';
SELECT outcome FROM idem_begin('leased', scope => 'kept', wait => '1 hour');
\echo :SQLSTATE
SELECT outcome FROM idem_begin('leased', scope => 'kept', wait => '10 ms');
RESET lock_timeout;

-- Tokens are moments that a JSON number holds, and never come twice: neither from a record that was
-- forgotten nor in the microsecond of another claim.
CREATE TEMP TABLE handed_out (token bigint PRIMARY KEY);
DO $$
BEGIN
    FOR i IN 1..500 LOOP
        INSERT INTO handed_out SELECT token FROM idem_begin('token', scope => 'kept');
        PERFORM idem_release('token', 'kept');
        INSERT INTO handed_out SELECT token FROM idem_begin('token ' || i, scope => 'kept');
    END LOOP;
END $$;
SELECT count(*), max(token) < 2::numeric ^ 53 AS exact,
       bool_and(timestamptz '2000-01-01 00:00 UTC' + token * interval '1 microsecond'
                BETWEEN now() - interval '1 min' AND now() + interval '1 min') AS moments
  FROM handed_out;

-- A claim that is given back in its own transaction leaves the row as it was, whatever was written.
SELECT token FROM idem_begin('before', '{"amount": 5}', 'kept') \gset
SELECT idem_fail('before', 'mail down', true, scope => 'kept', token => :token);
CREATE TEMP TABLE as_it_was AS SELECT * FROM idempotency.record WHERE (scope, key) = ('kept', 'before');
BEGIN;
SELECT outcome, attempt FROM idem_begin('before', '{"amount": 5}', 'kept');
SELECT idem_checkpoint('before', 'half', scope => 'kept') IS NOT NULL AS noted;
SELECT idem_release('before', 'kept');
COMMIT;
SELECT count(*) AS as_it_was FROM (TABLE as_it_was INTERSECT SELECT * FROM idempotency.record) same;

SELECT idem_policy_drop('kept'), idem_policy_drop('kept-2');
DROP TABLE handed_out, as_it_was;
