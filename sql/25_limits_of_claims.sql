-- Promise: a result that the policy allowed at the claim is allowed at its end, because its effect has
-- happened. A policy that allows more now helps as well.
\a\pset footer off
\set VERBOSITY terse
CREATE FUNCTION test.limited(max_bytes integer, large text) RETURNS void LANGUAGE sql
    AS $$SELECT idem_policy_set('limits', max_body_bytes => max_bytes, on_large_body => large, replace => true)$$;
CREATE VIEW test.kept AS
SELECT key, status, length(body) AS body, body_omitted, headers, state FROM idempotency.records WHERE scope = 'limits'
 ORDER BY key;

-- Claims that are open when the limit is lowered: leased ones, one of this transaction, one that somebody
-- else decides.
SELECT test.limited(100, 'error');
SELECT token FROM idem_begin('complete', scope => 'limits') \gset complete_
SELECT token FROM idem_begin('fail', scope => 'limits') \gset fail_
SELECT token FROM idem_begin('checkpoint', scope => 'limits') \gset checkpoint_
SELECT outcome FROM idem_begin('resolve', scope => 'limits');
SELECT token FROM idem_begin('too large', scope => 'limits') \gset too_large_
BEGIN;
SELECT outcome FROM idem_begin('here', scope => 'limits');
SELECT test.limited(5, NULL);
SELECT idem_complete('here', 200, repeat('x', 100), '{"X": "yyyyyyyyyyyyyyyy"}', 'limits');
COMMIT;
SELECT idem_complete('complete', 200, repeat('x', 100), '{"X": "yyyyyyyyyyyyyyyy"}', 'limits', token => :complete_token);
SELECT idem_fail('fail', status_code => 422, body => repeat('x', 100), scope => 'limits', token => :fail_token);
SELECT idem_checkpoint('checkpoint', 'half', '{"seat": "12A, window"}', 'limits', token => :checkpoint_token) IS NOT NULL AS noted;
SELECT idem_resolve('resolve', 'complete', 'limits', status_code => 200, body => repeat('x', 100));
SELECT * FROM test.kept;
-- Neither limit allows more than that; and a new claim has the new one.
SELECT idem_complete('too large', 200, repeat('x', 101), scope => 'limits', token => :too_large_token);
\echo :SQLSTATE
SELECT token FROM idem_begin('new', scope => 'limits') \gset new_
SELECT idem_complete('new', 200, repeat('x', 6), scope => 'limits', token => :new_token);
\echo :SQLSTATE
-- A body that was to be left out is left out, though it would be an error now; and the reverse.
SELECT test.limited(10, 'omit');
SELECT token FROM idem_begin('omit', scope => 'limits') \gset omit_
SELECT test.limited(5, 'error');
SELECT token FROM idem_begin('error', scope => 'limits') \gset error_
SELECT idem_complete('omit', 200, repeat('x', 11), scope => 'limits', token => :omit_token);
SELECT test.limited(5, 'omit');
SELECT idem_complete('error', 200, repeat('x', 6), scope => 'limits', token => :error_token);
-- A limit that was raised, and a policy that is gone, for the setting allows more.
SELECT test.limited(5, 'error');
SELECT token FROM idem_begin('raised', scope => 'limits') \gset raised_
SELECT idem_policy_drop('limits');
SELECT idem_complete('raised', 200, repeat('x', 1000), scope => 'limits', token => :raised_token);
-- The next attempt follows the policy at its claim.
SELECT token FROM idem_begin('again', scope => 'limits') \gset again_
SELECT idem_fail('again', retryable => true, retry_after => '0', scope => 'limits', token => :again_token);
SELECT test.limited(5, 'error');
SELECT token FROM idem_begin('again', scope => 'limits') \gset again_
SELECT idem_complete('again', 200, repeat('x', 6), scope => 'limits', token => :again_token);
\echo :SQLSTATE
SELECT * FROM test.kept;
SELECT idem_policy_drop('limits');
DROP VIEW test.kept;
DROP FUNCTION test.limited;
DELETE FROM idempotency.record WHERE scope = 'limits';
