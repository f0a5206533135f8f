-- Promise: a row of idempotency.policy that idem_policy_set would not write is refused. If it gets in by
-- other means, it closes its scope.
\a\pset footer off
\set VERBOSITY terse
SELECT idem_policy_set('hand*', ttl => '1 hour', retention => '2 hours', retry_base => '1 s', retry_cap => '2 s');

-- By UPDATE, INSERT and COPY.
UPDATE idempotency.policy SET ttl = '0';
UPDATE idempotency.policy SET ttl = '1 day -25 hours';
UPDATE idempotency.policy SET ttl = '178000000 years', retention = NULL;
UPDATE idempotency.policy SET retention = '1 min';
UPDATE idempotency.policy SET retention = '36525 days 1 us';
UPDATE idempotency.policy SET lease = '0';
UPDATE idempotency.policy SET lease = '36526 days';
UPDATE idempotency.policy SET wait = '-1 us';
UPDATE idempotency.policy SET wait = '24 hours 1 us';
UPDATE idempotency.policy SET retry_base = '-1 s';
UPDATE idempotency.policy SET retry_base = '3 s';
UPDATE idempotency.policy SET retry_cap = '37000 days';
UPDATE idempotency.policy SET max_attempts = 0;
UPDATE idempotency.policy SET max_body_bytes = -1;
UPDATE idempotency.policy SET max_body_bytes = 268435457;
UPDATE idempotency.policy SET on_lease_expiry = 'maybe';
UPDATE idempotency.policy SET on_large_body = 'truncate';
UPDATE idempotency.policy SET max_ttl = '1 s', ttl = '2 s';
UPDATE idempotency.policy SET max_lease = '0';
UPDATE idempotency.policy SET max_lease = '1 s', lease = '2 s';
UPDATE idempotency.policy SET derive_window = '-1 s';
UPDATE idempotency.policy SET retry_jitter = 'exact';
UPDATE idempotency.policy SET on_missing_key = 'refuse';
UPDATE idempotency.policy SET abandon_after = '0';
UPDATE idempotency.policy SET on_abandon = 'forget';
UPDATE idempotency.policy SET fingerprint_fields = '{}';
INSERT INTO idempotency.policy (scope_pattern) VALUES ('a*b');
INSERT INTO idempotency.policy (scope_pattern) VALUES ('a**');
INSERT INTO idempotency.policy (scope_pattern) VALUES (E'a\nb');
INSERT INTO idempotency.policy (scope_pattern) VALUES (E'a\x7f');
INSERT INTO idempotency.policy (scope_pattern) VALUES (repeat('x', 1021));
COPY idempotency.policy (scope_pattern, lease) FROM stdin;
copied	-1 day
\.
-- The ends of the ranges are good.
UPDATE idempotency.policy SET ttl = '36525 days', retention = '876600 hours', lease = '36525 days',
    wait = '1 day', retry_base = '0', retry_cap = '36525 days', max_body_bytes = 268435456;
SELECT outcome, expires_at - created_at AS ttl FROM idem_begin('k', scope => 'hand', wait => '0');
INSERT INTO idempotency.policy (scope_pattern) VALUES ('*'), (''), (repeat('ü', 255));
SELECT idem_policy_drop('*', 'a test'), idem_policy_drop('', 'a test'), idem_policy_drop(repeat('ü', 255), 'a test'), idem_policy_drop('hand*', 'a test');

-- Without the constraints, the values read are checked: for a claim, its end, a look.
CREATE TEMP TABLE checks AS
SELECT conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint
 WHERE conrelid = 'idempotency.policy'::regclass AND contype = 'c';
CREATE FUNCTION test.alter_checks(how text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'ALTER TABLE idempotency.policy ' || (SELECT string_agg(format(how, conname, definition), ', ') FROM checks);
END $$;
SELECT test.alter_checks('DROP CONSTRAINT %I');
-- An assignment is tried, and the result of calls is shown.
CREATE FUNCTION test.asked(in_scope text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    told text;
    why text;
BEGIN
    RETURN (idem_begin(gen_random_uuid()::text, '{}', in_scope)).outcome;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS told = MESSAGE_TEXT, why = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(' ', SQLSTATE, told || '.', why);
END $$;
CREATE FUNCTION test.with_policy(assignment text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM idempotency.policy;
    PERFORM idem_policy_set('hand', lease => '1 min');
    EXECUTE 'UPDATE idempotency.policy SET ' || assignment;
    RETURN test.asked('hand');
END $$;
SELECT assignment, test.with_policy(assignment)
  FROM unnest(ARRAY['ttl = ''1 s''', 'ttl = ''0''', 'ttl = ''1 day -25 hours''', 'ttl = ''178000000 years''',
                    'ttl = ''2 s'', retention = ''1 s''', 'retention = ''-178000000 years''', 'lease = ''0''',
                    'lease = ''178000000 years''', 'wait = ''-1 s''', 'wait = ''25 hours''',
                    'retry_base = ''-1 s''', 'retry_cap = ''178000000 years''',
                    'retry_base = ''2 s'', retry_cap = ''1 s''', 'max_ttl = ''0''', 'ttl = ''2 s'', max_ttl = ''1 s''',
                    'max_lease = ''-1 s''', 'lease = ''2 s'', max_lease = ''1 s''', 'derive_window = ''0''',
                    'retry_jitter = ''some''', 'on_missing_key = ''refuse''', 'abandon_after = ''-1 s''', 'on_abandon = ''forget''', 'fingerprint_fields = ''{}''', 'fingerprint_fields = ''{a,NULL}''', 'max_attempts = 0', 'max_body_bytes = -1',
                    'max_body_bytes = 2147483647', 'on_lease_expiry = ''maybe''', 'on_lease_expiry = ''''',
                    'on_large_body = ''truncate''', 'exclude_fields = ''{a,NULL}''', 'exclude_fields = ''{$.}''',
                    'drop_headers = ''{NULL}''', 'drop_headers = ''{"Set Cookie"}''',
                    'allowed_role = ''''', 'scope_pattern = ''han*d''', 'scope_pattern = ''*hand''']) assignment;
-- Other scopes are not affected.
SELECT test.with_policy('on_lease_expiry = ''maybe''') AS here, test.asked('elsewhere') AS elsewhere;
-- It stays closed for everything, and what was begun before can go on when it is mended.
SELECT idem_policy_set('hand', lease => '1 min', replace => true);
SELECT token FROM idem_begin('open', scope => 'hand') \gset
UPDATE idempotency.policy SET lease = '0';
SELECT statement, code, error FROM refused($$
SELECT idem_complete('open', scope => 'hand', token => :token);
SELECT status FROM idem_get('open', 'hand');
$$, :token);
SELECT idem_policy_set('hand', lease => '1 min', replace => true);
SELECT idem_complete('open', scope => 'hand', token => :token);
-- Two rows for one scope, or a row for no scope.
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_pkey;
INSERT INTO idempotency.policy (scope_pattern) VALUES ('hand');
SELECT outcome FROM idem_begin('two', scope => 'hand');
\echo :SQLSTATE
DELETE FROM idempotency.policy;
ALTER TABLE idempotency.policy ALTER COLUMN scope_pattern DROP NOT NULL;
INSERT INTO idempotency.policy (scope_pattern) VALUES (NULL);
SELECT outcome FROM idem_begin('none', scope => 'hand');
\echo :SQLSTATE
DELETE FROM idempotency.policy;
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_pkey PRIMARY KEY (scope_pattern);
-- Columns that are no longer ours are not read as if they were.
BEGIN;
ALTER EXTENSION idempotency DROP VIEW idempotency.policies;
DROP VIEW idempotency.policies;
ALTER TABLE idempotency.policy ALTER COLUMN ttl TYPE text;
INSERT INTO idempotency.policy (scope_pattern, ttl) VALUES ('hand', 'a day or so');
SELECT outcome FROM idem_begin('typed', scope => 'hand');
\echo :SQLSTATE
ROLLBACK;
SELECT test.alter_checks('ADD CONSTRAINT %I %s');
DROP TABLE checks;
DROP FUNCTION test.with_policy, test.asked, test.alter_checks;

-- Times end where timestamps do: whatever span stands in a record, nothing wraps around.
SELECT token FROM idem_begin('long', scope => 'hand', lease => '1 hour') \gset
UPDATE idempotency.record SET lease_us = 9223372036854775807 WHERE scope = 'hand' AND key = 'long';
SELECT idem_extend('long', :token, scope => 'hand') > now() + interval '1000 years' AS far_away;
SELECT outcome FROM idem_begin('long', scope => 'hand');
DELETE FROM idempotency.record WHERE scope IN ('hand', 'elsewhere');
