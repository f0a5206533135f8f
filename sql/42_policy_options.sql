-- Promise: a policy decides about a missing key and a missing principal, limits the arguments of calls,
-- and makes pauses random or exact.
\a\pset footer off
SET statement_timeout = '30 s';

-- on_missing_key: a new key each time; none; or the same for the same request.
SELECT idem_policy_set('options', on_missing_key => 'generate');
SELECT outcome, length(key) FROM idem_begin(NULL, '{"a": 1}', 'options');
SELECT outcome, length(key) FROM idem_begin(NULL, '{"a": 1}', 'options');
SELECT idem_policy_set('options', on_missing_key => 'error', replace => true);
SELECT * FROM refused($$
SELECT outcome FROM idem_begin(NULL, '{"a": 1}', 'options');
SELECT outcome FROM idem_execute(NULL, 'echo(jsonb)', '{"a": 1}', 'options');
$$);
SELECT outcome FROM idem_begin('k', '{"a": 1}', 'options');
SELECT idem_policy_set('options', on_missing_key => 'derive', exclude_fields => '{sent_at}', replace => true);
SELECT outcome, key FROM idem_begin(NULL, '{"b": 2.0, "a": 1, "sent_at": 1}', 'options', 'p') \gset
SELECT :'outcome' AS outcome, :'key' = encode(idem_fingerprint(to_jsonb(encode(idem_fingerprint('{"a": 1, "b": 2}'), 'hex')),
                                                               'p', 'options'), 'hex') AS as_documented;
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"a": 1.0, "sent_at": 2, "b": 2}', 'options', 'p');
-- Another request, principal or scope is another key. No digest tells what counts.
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"a": 1, "b": 3}', 'options', 'p');
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"a": 1, "b": 2}', 'options', 'q');
SELECT idem_policy_set('options2', on_missing_key => 'derive');
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"a": 1, "b": 2}', 'options2', 'p');
SELECT outcome FROM idem_begin(NULL, '{"a": 1, "b": 2}', 'options', 'p', fingerprint => '\x01');
\echo :SQLSTATE
SELECT outcome FROM idem_begin(NULL, scope => 'options');
\echo :SQLSTATE
-- A key that is given is the key, and a request is checked against it as ever.
SELECT outcome FROM idem_begin(:'key', '{"a": 5}', 'options', 'p');
-- Once, with idem_execute as well; the returned row names the key.
SELECT outcome, idem_problem(c) IS NULL AS fine FROM idem_execute(NULL, 'echo(jsonb)', '{"x": 1}', 'options') c;
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_execute(NULL, 'echo(jsonb)', '{"x": 1}', 'options');
-- idem_once is for messages, which have a key.
SELECT idem_once(NULL, 'options');
\echo :SQLSTATE

-- derive_window: the memory of such keys, and of no others.
SELECT idem_policy_set('options', on_missing_key => 'derive', derive_window => '10 min', ttl => '1 day', retention => '2 days', replace => true);
CREATE FUNCTION test.kept(in_key text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' / ', expires_at - claimed_at, retained_until - claimed_at)
      FROM idempotency.record WHERE scope = 'options' AND key = in_key $$;
SELECT key FROM idem_begin(NULL, '{"w": 1}', 'options') \gset
SELECT outcome FROM idem_begin('w', '{"w": 1}', 'options');
SELECT test.kept(:'key') AS derived, test.kept('w') AS given;
BEGIN;
SELECT key, outcome, token FROM idem_begin(NULL, '{"w": 2}', 'options', ttl => '1 min') \gset
SELECT idem_complete(:'key', 201, 'made', scope => 'options');
COMMIT;
SELECT test.kept(:'key') AS shorter_ttl;
SELECT outcome, status_code FROM idem_begin(NULL, '{"w": 2}', 'options');
SELECT test.let_pass('2 min', 'options');
SELECT outcome FROM idem_begin(NULL, '{"w": 2}', 'options');
-- After the window the same request is a new one.
SELECT test.let_pass('10 min', 'options');
SELECT outcome, attempt FROM idem_begin(NULL, '{"w": 2}', 'options');
-- Left open, it is the ttl.
SELECT idem_policy_alter('options', unset => '{derive_window}');
SELECT key FROM idem_begin(NULL, '{"w": 3}', 'options') \gset
SELECT test.kept(:'key') AS derived;
SELECT option, value FROM idem_policy('options') WHERE option = 'derive_window';
DELETE FROM idempotency.record WHERE scope IN ('options', 'options2');

-- principal_required.
SELECT idem_policy_set('options', principal_required => true, replace => true, reason => 'a test');
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'options');
SELECT idem_once('k', 'options');
SELECT outcome FROM idem_execute('k', 'echo(jsonb)', '{}', 'options');
$$);
SELECT count(*) FROM idempotency.record WHERE scope = 'options';
SELECT outcome FROM idem_begin('k', scope => 'options', principal => 'p');
SELECT idem_once('o', 'options', 'p');
-- Claims from before, without one, can be ended and looked at.
SELECT idem_policy_set('options', replace => true, reason => 'a test');
SELECT token FROM idem_begin('k', scope => 'options') \gset
SELECT idem_policy_set('options', principal_required => true, replace => true, reason => 'a test');
SELECT idem_complete('k', 200, scope => 'options', token => :token);
SELECT status FROM idem_get('k', 'options');
SELECT idem_forget('k', 'options');
DELETE FROM idempotency.record WHERE scope = 'options';

-- max_ttl and max_lease: arguments, settings and later calls are cut down; the policy's own are refused.
SELECT * FROM refused($$
SELECT idem_policy_set('options', ttl => '2 hours', max_ttl => '1 hour');
SELECT idem_policy_set('options', lease => '2 min', max_lease => '1 min');
SELECT idem_policy_set('options', max_ttl => '0');
$$);
SELECT idem_policy_set('options', max_ttl => '1 hour', max_lease => '20 s', replace => true, reason => 'a test');
CREATE FUNCTION test.spans_of(in_key text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' / ', expires_at - claimed_at, retained_until - claimed_at, lease_us * interval '1 us')
      FROM idempotency.record WHERE scope = 'options' AND key = in_key $$;
SELECT outcome FROM idem_begin('settings', scope => 'options');
SELECT outcome FROM idem_begin('longer', scope => 'options', ttl => '1 day', lease => '1 hour');
SELECT outcome FROM idem_begin('shorter', scope => 'options', ttl => '1 min', lease => '1 s');
SELECT k AS key, test.spans_of(k) FROM unnest('{settings,longer,shorter}'::text[]) k;
SELECT outcome, lease_until <= clock_timestamp() + interval '20 s' AS capped,
       expires_at <= clock_timestamp() + interval '1 hour' AS told
  FROM idem_begin('asked', scope => 'options', ttl => '1 day', lease => '1 hour');
SELECT * FROM idem_policy('options') WHERE option IN ('ttl', 'retention', 'max_ttl', 'lease', 'max_lease');
-- With a retention of the policy's own, only the answer goes earlier.
SELECT idem_policy_alter('options', retention => '3 days');
SELECT outcome FROM idem_begin('kept', scope => 'options', ttl => '1 day');
SELECT test.spans_of('kept');
-- Heartbeats and checkpoints, with a lease and with the claim's own, which may be of an earlier policy.
SELECT idem_policy_set('options', replace => true, reason => 'a test');
SELECT token FROM idem_begin('beat', scope => 'options', lease => '1 hour') \gset
SELECT idem_policy_set('options', max_ttl => '1 hour', max_lease => '20 s', replace => true, reason => 'a test');
SELECT idem_extend('beat', :token, scope => 'options') <= clock_timestamp() + interval '20 s' AS capped;
SELECT idem_extend('beat', :token, lease => '10 min', scope => 'options') <= clock_timestamp() + interval '20 s' AS capped;
SELECT idem_checkpoint('beat', 'here', scope => 'options', token => :token, lease => '10 min') <= clock_timestamp() + interval '20 s' AS capped;
SELECT idem_extend('beat', :token, lease => '1 s', scope => 'options') <= clock_timestamp() + interval '1 s' AS shorter;
-- The ttl of idem_complete.
SELECT idem_complete('beat', 200, scope => 'options', token => :token, ttl => '5 days');
SELECT expires_at - claimed_at <= interval '1 hour' AS capped FROM idempotency.record WHERE scope = 'options' AND key = 'beat';
SELECT idem_once('once', 'options', ttl => '1 day');
SELECT test.spans_of('once');
-- A ttl that only seems to be longer than the retention is none.
SELECT idem_policy_set('options', retention => '1 hour', replace => true);
\echo :SQLSTATE
SELECT idem_policy_set('options', retention => '1 hour', max_ttl => '30 min', replace => true, reason => 'a test');
DELETE FROM idempotency.record WHERE scope = 'options';

-- retry_jitter: exactly 1, 2, 4, 8, 16 minutes, or anything up to that.
CREATE FUNCTION test.pauses(attempts integer) RETURNS interval[] LANGUAGE plpgsql AS $$
DECLARE
    pauses interval[];
BEGIN
    FOR n IN 1 .. attempts LOOP
        IF (idem_begin('pause', scope => 'options')).outcome <> 'execute' THEN RAISE 'attempt % refused', n; END IF;
        PERFORM idem_fail('pause', retryable => true, scope => 'options');
        pauses := pauses || (SELECT next_attempt_at - finished_at FROM idempotency.record WHERE scope = 'options' AND key = 'pause');
        UPDATE idempotency.record SET next_attempt_at = finished_at WHERE scope = 'options' AND key = 'pause';
    END LOOP;
    DELETE FROM idempotency.record WHERE scope = 'options' AND key = 'pause';
    RETURN pauses;
END $$;
SELECT idem_policy_set('options', retry_base => '1 min', retry_cap => '1 hour', retry_jitter => 'none', replace => true, reason => 'a test');
SELECT test.pauses(8);
SELECT idem_policy_set('options', retry_base => '1 min', retry_cap => '1 hour', retry_jitter => 'full', replace => true, reason => 'a test');
SELECT p[1] <= '1 min' AND p[2] <= '2 min' AND p[3] <= '4 min' AND p[4] <= '8 min' AS below,
       p <> '{1 min,2 min,4 min,8 min}' AS random
  FROM (SELECT test.pauses(4)) f (p);
-- Times that the holder gives are exact in any case.
SELECT outcome FROM idem_begin('own', scope => 'options');
SELECT token FROM idempotency.record WHERE scope = 'options' AND key = 'own' \gset
SELECT idem_fail('own', retryable => true, scope => 'options', token => :token, retry_after => '7 min');
SELECT next_attempt_at - finished_at AS pause FROM idempotency.record WHERE scope = 'options' AND key = 'own';
SELECT * FROM refused($$
SELECT idem_policy_set('options', retry_jitter => 'exact');
SELECT idem_policy_set('options', on_missing_key => 'refuse');
$$);

SELECT idem_policy_drop('options', 'a test'), idem_policy_drop('options2', 'a test');
DELETE FROM idempotency.record WHERE scope IN ('options', 'options2');
TRUNCATE idempotency.policy;
DROP FUNCTION test.kept, test.spans_of, test.pauses;
