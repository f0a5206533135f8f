-- Promise: in a scope with max_open_claims, a principal is granted no key while it has that many leased
-- claims.
\a\pset footer off

SELECT idem_policy_set('few/*', max_open_claims => 2);
SELECT option, value, source FROM idem_policy('few/1') WHERE option = 'max_open_claims';
SELECT option, value, source FROM idem_policy('none') WHERE option = 'max_open_claims';
SELECT outcome FROM unnest('{a,b}'::text[]) k, idem_begin(k, scope => 'few/1', principal => 'p', lease => '1 hour');
SELECT statement, code, error, detail, hint FROM refused($$
SELECT idem_begin('c', scope => 'few/1', principal => 'p', lease => '1 hour');
SELECT idem_begin('c', scope => 'few/1', principal => 'p');
SELECT idem_begin('c', scope => 'few/1', principal => 'p', hold => true);
$$);
SELECT count(*) FROM idempotency.record WHERE key = 'c' AND scope = 'few/1';
-- Repeats are answered.
SELECT outcome FROM idem_begin('a', scope => 'few/1', principal => 'p');
-- Each principal and each scope counts by itself.
SELECT outcome FROM idem_begin('c', scope => 'few/1', principal => 'q', lease => '1 hour');
SELECT outcome FROM idem_begin('c', scope => 'few/2', principal => 'p', lease => '1 hour');
-- Work that ends in its transaction needs no lease.
SELECT idem_once('once', 'few/1', 'p');
SELECT outcome FROM idem_execute('executed', 'public.echo(jsonb)', '{"x": 1}', 'few/1', 'p');
BEGIN;
SELECT outcome FROM idem_begin('t', scope => 'few/1', principal => 'p', transactional => true);
SELECT idem_complete('t', 200, scope => 'few/1', principal => 'p');
COMMIT;
-- A claim that ends, or whose lease ends, makes room.
SELECT idem_complete('a', 200, scope => 'few/1', principal => 'p', token => token)
  FROM idempotency.record WHERE (key, scope, principal) = ('a', 'few/1', 'p');
SELECT outcome FROM idem_begin('c', scope => 'few/1', principal => 'p', lease => '1 hour');
UPDATE idempotency.record SET lease_until = now() WHERE (key, scope, principal) = ('b', 'few/1', 'p');
SELECT outcome FROM idem_begin('d', scope => 'few/1', principal => 'p', lease => '1 hour');
SELECT statement, code FROM refused($$
SELECT idem_begin('b', scope => 'few/1', principal => 'p');
$$);
-- The claims of this transaction count, as far as they may become leased.
SELECT idem_policy_set('own', max_open_claims => 2);
BEGIN;
SELECT outcome FROM idem_begin('t', scope => 'own', principal => 'p', transactional => true);
SELECT outcome FROM idem_begin('a', scope => 'own', principal => 'p');
SELECT outcome FROM idem_begin('b', scope => 'own', principal => 'p');
SAVEPOINT s;
\set VERBOSITY terse
SELECT outcome FROM idem_begin('c', scope => 'own', principal => 'p');
\echo :SQLSTATE
\set VERBOSITY default
ROLLBACK TO s;
SELECT idem_release('a', scope => 'own', principal => 'p');
SELECT outcome FROM idem_begin('c', scope => 'own', principal => 'p');
ROLLBACK;

SELECT statement, code, error, detail FROM refused($$
SELECT idem_policy_alter('few/*', max_open_claims => 0);
$$);
SELECT idem_policy_drop('few/*'), idem_policy_drop('own');
