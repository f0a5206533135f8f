-- Promise: bad input is refused before anything is claimed, with a standard SQLSTATE and a helpful text.
-- Every record stays unchanged.
\a\pset footer off

-- Something to leave alone: a leased claim, a result, and a policy.
SELECT token FROM idem_begin('open', '{"amount": 5}', 'bad', lease => '1 hour') \gset
SELECT token AS done_token FROM idem_begin('done', '{"amount": 5}', 'bad') \gset
SELECT idem_complete('done', 201, 'made', scope => 'bad', token => :done_token);
SELECT idem_policy_set('bad-small', max_body_bytes => 10);
SELECT token AS small_token FROM idem_begin('small', scope => 'bad-small', lease => '1 hour') \gset
SELECT test.stored() AS before \gset

-- Keys.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('', scope => 'bad');
SELECT outcome FROM idem_begin(repeat('k', 256), scope => 'bad');
SELECT outcome FROM idem_begin(repeat(U&'\00e9', 256), scope => 'bad');
SELECT outcome FROM idem_begin(repeat('k', 1000000), scope => 'bad');
SELECT outcome FROM idem_begin('   ', scope => 'bad');
SELECT outcome FROM idem_begin(E'a\nb', scope => 'bad');
SELECT outcome FROM idem_begin(E'\t', scope => 'bad');
SELECT outcome FROM idem_begin(E'a\x7f', scope => 'bad');
SELECT outcome FROM idem_begin(U&'a\0085b', scope => 'bad');
-- The same rules for every function that takes a key.
SELECT idem_complete('', scope => 'bad');
SELECT idem_fail(repeat('k', 256), scope => 'bad');
SELECT idem_extend(' ', :token, scope => 'bad');
SELECT idem_checkpoint(E'\x01', 'here', scope => 'bad');
SELECT idem_release('', 'bad');
SELECT idem_once('', 'bad');
SELECT outcome FROM idem_execute('', 'echo(jsonb)', '{}', 'bad');
SELECT idem_get('', 'bad');
SELECT idem_resolve('', 'fail', 'bad');
SELECT idem_forget('', 'bad');
-- Only idem_begin and idem_execute make one up.
SELECT idem_complete(NULL, scope => 'bad');
SELECT idem_fail(NULL, scope => 'bad');
SELECT idem_extend(NULL, :token, scope => 'bad');
SELECT idem_checkpoint(NULL, 'here', scope => 'bad');
SELECT idem_release(NULL, 'bad');
SELECT idem_once(NULL, 'bad');
SELECT idem_get(NULL, 'bad');
SELECT idem_resolve(NULL, 'fail', 'bad');
SELECT idem_forget(NULL, 'bad');
$$, :token);
SELECT idem_policy_set('bad', on_missing_key => 'error');
SELECT * FROM refused($$
SELECT outcome FROM idem_begin(NULL, scope => 'bad');
SELECT outcome FROM idem_execute(NULL, 'echo(jsonb)', '{}', 'bad');
$$);
SELECT idem_policy_drop('bad');

-- Scope and principal.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => NULL);
SELECT outcome FROM idem_begin('k', scope => repeat('s', 256));
SELECT outcome FROM idem_begin('k', scope => E'a\rb');
SELECT outcome FROM idem_begin('k', scope => ' ');
SELECT outcome FROM idem_begin('k', scope => 'bad', principal => NULL);
SELECT outcome FROM idem_begin('k', scope => 'bad', principal => repeat(U&'\+01F600', 256));
SELECT outcome FROM idem_begin('k', scope => 'bad', principal => E'a\x1fb');
SELECT idem_complete('open', scope => NULL, token => :token);
SELECT idem_once('k', 'bad', NULL);
SELECT idem_get('open', repeat('s', 256));
$$, :token);

-- Times: zero where it makes no sense, negative, beyond any calendar.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'bad', ttl => '0');
SELECT outcome FROM idem_begin('k', scope => 'bad', ttl => '200000 years');
SELECT outcome FROM idem_begin('k', scope => 'bad', lease => '0');
SELECT outcome FROM idem_begin('k', scope => 'bad', lease => '178000000 years');
$$);
-- Servers before 17 refuse it before we do.
DO $$
DECLARE
    endless text;
BEGIN
    FOREACH endless IN ARRAY '{infinity,-infinity}'::text[] LOOP
        BEGIN
            PERFORM idem_begin('k', scope => 'bad', ttl => endless::interval);
        EXCEPTION WHEN invalid_datetime_format OR invalid_parameter_value THEN
            RAISE NOTICE '% is refused', endless;
        END;
    END LOOP;
END $$;
SELECT * FROM refused($$
SELECT idem_complete('open', scope => 'bad', token => :token, ttl => '0');
SELECT idem_complete('open', scope => 'bad', token => :token, ttl => '200000 years');
SELECT idem_extend('open', :token, '0', 'bad');
SELECT idem_extend('open', :token, '200000 years', 'bad');
SELECT idem_checkpoint('open', 'here', scope => 'bad', token => :token, lease => '0');
SELECT idem_fail('open', retryable => true, scope => 'bad', token => :token, retry_after => '200000 years');
SELECT idem_fail('open', scope => 'bad', token => :token, retry_after => '1 s');
SELECT idem_policy_set('bad', retention => '0');
SELECT idem_policy_set('bad', retention => '200000 years');
SELECT outcome FROM idem_begin('k', scope => 'bad', first_sent => 'infinity');
SELECT outcome FROM idem_begin('k', scope => 'bad', first_sent => '-infinity');
SELECT outcome FROM idem_begin('k', scope => 'bad', ttl => '-1 s');
SELECT outcome FROM idem_begin('k', scope => 'bad', ttl => '-178000000 years');
SELECT outcome FROM idem_begin('k', scope => 'bad', ttl => '1 mon -31 days');
SELECT outcome FROM idem_begin('k', scope => 'bad', lease => '-1 us');
SELECT outcome FROM idem_begin('open', scope => 'bad', wait => '-1 s');
SELECT outcome FROM idem_begin('open', scope => 'bad', wait => '200000 years');
SELECT outcome FROM idem_begin('open', scope => 'bad', wait => '24 hours 1 us');
SELECT idem_once('open', 'bad', wait => '-1 s');
SELECT idem_once('k', 'bad', ttl => '-1 s');
SELECT idem_extend('open', :token, '-1 s', 'bad');
SELECT idem_checkpoint('open', 'here', scope => 'bad', token => :token, lease => '-1 s');
SELECT idem_fail('open', retryable => true, scope => 'bad', token => :token, retry_after => '-1 s');
SELECT idem_policy_set('bad', retention => '-1 s');
SELECT idem_policy_set('bad', lease => '178000000 years');
SELECT outcome FROM idem_begin('k', scope => 'bad', wait => '-1 s', holder => '');
$$, :token);

-- Fingerprint, holder, recovery point.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'bad', fingerprint => '');
SELECT outcome FROM idem_begin('k', scope => 'bad', fingerprint => decode(repeat('00', 65), 'hex'));
SELECT outcome FROM idem_begin('k', scope => 'bad', holder => '');
SELECT outcome FROM idem_begin('k', scope => 'bad', holder => repeat('h', 256));
SELECT idem_checkpoint('open', '', scope => 'bad', token => :token);
SELECT idem_checkpoint('open', E'a\nb', scope => 'bad', token => :token);
SELECT idem_checkpoint('open', repeat('r', 256), scope => 'bad', token => :token);
SELECT idem_checkpoint('open', NULL, scope => 'bad', token => :token);
$$, :token);

-- Status codes.
SELECT * FROM refused($$
SELECT idem_complete('open', 99, scope => 'bad', token => :token);
SELECT idem_complete('open', 600, 'x'::bytea, scope => 'bad', token => :token);
SELECT idem_complete('open', 0, '{}'::jsonb, scope => 'bad', token => :token);
SELECT idem_fail('open', status_code => -1, scope => 'bad', token => :token);
SELECT idem_fail('open', status_code => 2147483647, scope => 'bad', token => :token);
$$, :token);

-- Headers.
SELECT * FROM refused($$
SELECT idem_complete('open', headers => '[]', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '"Date"', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '"none"', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": 1}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": "ok", "B": null}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": {"B": "c"}}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": ["ok", 1]}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": ["ok", ["b"]]}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A": [{}]}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"": "x"}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A B": "x"}', scope => 'bad', token => :token);
SELECT idem_complete('open', headers => '{"A\r\nSet-Cookie": "x"}', scope => 'bad', token => :token);
SELECT idem_fail('open', headers => '{"A": 1}', scope => 'bad', token => :token);
$$, :token);

-- Sizes: the policy's limit and the setting's default of 4 MB.
SELECT idem_complete('small', 200, '12345678901', scope => 'bad-small', token => :small_token);
\echo :SQLSTATE
SELECT * FROM refused($$
SELECT idem_complete('open', 200, repeat('x', 4194305), scope => 'bad', token => :token);
SELECT idem_fail('open', body => convert_to(repeat('x', 4194305), 'UTF8'), error => NULL, retryable => false, status_code => 500,
                 scope => 'bad', token => :token);
$$, :token);

-- Tokens: none, another's, of another key; and no claim at all.
SELECT * FROM refused($$
SELECT idem_complete('open', scope => 'bad');
SELECT idem_complete('open', scope => 'bad', token => :token + 1);
$$, :token);
SELECT idem_complete('open', scope => 'bad', token => :done_token);
\echo :SQLSTATE
SELECT * FROM refused($$
SELECT idem_fail('open', scope => 'bad', token => -9223372036854775808);
SELECT idem_complete('nobody', scope => 'bad');
SELECT idem_fail('nobody', scope => 'bad', token => :token);
$$, :token);

-- Words and numbers.
SELECT * FROM refused($$
SELECT idem_resolve('open', 'retry', 'bad');
SELECT idem_resolve('open', '', 'bad');
SELECT idem_resolve('open', 'complete', 'bad', status_code => 99);
SELECT idem_resolve('open', 'complete', 'bad', headers => '[]');
SELECT idem_policy_set('bad', on_lease_expiry => 'later');
SELECT idem_policy_set('bad', on_large_body => 'drop');
SELECT idem_cleanup(0);
SELECT idem_cleanup(-1);
$$);

-- A request without a canonical form.
SELECT outcome FROM idem_begin('k', (repeat('[', 1001) || repeat(']', 1001))::jsonb, 'bad');
\echo :SQLSTATE

-- A transaction that can't write, and a caller without rights.
BEGIN READ ONLY;
SELECT outcome FROM idem_begin('k', scope => 'bad');
\echo :SQLSTATE
ROLLBACK;
CREATE ROLE regress_idem_stranger;
SET ROLE regress_idem_stranger;
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'bad');
SELECT idem_complete('open', scope => 'bad', token => :token);
SELECT idem_fail('open', scope => 'bad', token => :token);
$$, :token);
RESET ROLE;
DROP ROLE regress_idem_stranger;

-- All that left no trace and no lock. The claim is as good as before.
SELECT test.stored() = :'before' AS unchanged, * FROM test.locks();
SELECT idem_complete('open', 200, scope => 'bad', token => :token);

-- The largest of everything is accepted, in characters and not in bytes.
SELECT outcome FROM idem_begin(repeat(U&'\00e9', 255), scope => repeat(U&'\00e8', 255), principal => repeat(U&'\00ea', 255),
                               fingerprint => decode(repeat('00', 64), 'hex'), ttl => '36525 days', lease => '36525 days',
                               wait => '1 day', holder => repeat(U&'\00e9', 255));
SELECT outcome FROM idem_begin(repeat(U&'\00e9', 255), scope => repeat(U&'\00e8', 255), principal => repeat(U&'\00ea', 255));
-- Text that looks like SQL or a format is just text.
SELECT outcome, key, principal FROM idem_begin($$k'); DROP TABLE idempotency.record; --$$, scope => 'bad',
                                               principal => '%s%n $1 \', holder => '"''');
SELECT outcome FROM idem_begin($$k'); DROP TABLE idempotency.record; --$$, scope => 'bad', principal => '%s%n $1 \');
-- Accepted neighbours of refused values: status codes at the ends, spaces around, non-breaking space, format characters.
BEGIN;
SELECT outcome FROM unnest(ARRAY['c200', 'c599', ' a ', U&'\00a0', U&'\200b', '"']) k, idem_begin(k, scope => 'bad-not');
SELECT idem_complete('c200', 200, scope => 'bad-not'), idem_complete('c599', 599, scope => 'bad-not');
ROLLBACK;
SELECT idem_policy_drop('bad-small');

-- Together they have to fit into the primary key's index; refused before anything is granted.
SELECT outcome FROM idem_begin(repeat('🔑', 255), scope => repeat('🔑', 255), principal => repeat('🔑', 255));
\echo :SQLSTATE
SELECT count(*) FROM idempotency.record WHERE key = repeat('🔑', 255);
