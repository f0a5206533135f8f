-- Promise: a call's arguments override the scope's policy, and the policy overrides the settings. Of
-- several policies the exact one applies, else the one with the longest prefix. Bad values are refused.
\a\pset footer off
-- A wait that should not be there ends as an error.
SET statement_timeout = '30 s';

-- Settings, where no policy fits.
SET idempotency.default_ttl = '10 min';
SET idempotency.default_retention = '20 min';
SET idempotency.default_lease = '30 s';
CREATE FUNCTION test.spans(in_scope text, OUT ttl interval, OUT retention interval, OUT lease interval)
    LANGUAGE sql AS $$
    SELECT expires_at - claimed_at, retained_until - claimed_at,
           date_trunc('second', lease_until - claimed_at)
      FROM idempotency.record WHERE scope = in_scope $$;
SELECT outcome FROM idem_begin('k', scope => 'policy-setting');
SELECT * FROM test.spans('policy-setting');

-- By prefix, by a longer prefix, exactly.
SELECT idem_policy_set('policy-*', ttl => '1 hour', lease => '1 min');
SELECT idem_policy_set('policy-a*', ttl => '2 hours');
SELECT idem_policy_set('policy-abc', ttl => '3 hours');
SELECT idem_policy_set('policy-abc*', ttl => '4 hours');
SELECT outcome FROM unnest('{policy-x,policy-a,policy-ab,policy-abc,policy-abcd,policy,POLICY-A}'::text[]) s,
       idem_begin('k', scope => s);
SELECT s AS scope, (test.spans(s)).*
  FROM unnest('{policy-x,policy-a,policy-ab,policy-abc,policy-abcd,policy,POLICY-A}'::text[]) s;
-- Arguments win, one by one. A retention is never shorter than its ttl.
SELECT outcome FROM idem_begin('k', scope => 'policy-args', ttl => '5 hours', lease => '2 min');
SELECT * FROM test.spans('policy-args');
SELECT idem_policy_drop('policy-*'), idem_policy_drop('policy-a*'), idem_policy_drop('policy-abc'),
       idem_policy_drop('policy-abc*'), idem_policy_drop('policy-abc*');
-- A star alone fits every scope, the empty pattern only the empty scope.
SELECT idem_policy_set('*', on_missing_key => 'error');
SELECT outcome FROM idem_begin(NULL, scope => 'policy-any');
\echo :SQLSTATE
SELECT idem_policy_set('', on_missing_key => 'generate');
SELECT outcome FROM idem_begin(NULL);
SELECT idem_policy_drop('*'), idem_policy_drop('');
DELETE FROM idempotency.record WHERE scope = '';
RESET idempotency.default_ttl;
RESET idempotency.default_retention;
RESET idempotency.default_lease;

-- Setting a policy replaces the whole of it; a change counts from the next statement on, also within
-- a transaction, and is undone with it.
SELECT idem_policy_set('policy', ttl => '24 hours', max_attempts => 3, exclude_fields => '{sent_at}');
SELECT idem_policy_set('policy', lease => '1 min', replace => true);
SELECT * FROM idempotency.policy WHERE scope_pattern = 'policy' \gx
BEGIN;
SELECT idem_policy_set('policy', on_missing_key => 'error', replace => true);
SAVEPOINT s;
SELECT outcome FROM idem_begin(NULL, scope => 'policy');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT idem_policy_drop('policy', 'a test');
SELECT outcome FROM idem_begin(NULL, scope => 'policy');
ROLLBACK TO s;
SELECT outcome FROM idem_begin(NULL, scope => 'policy');
\echo :SQLSTATE
ROLLBACK;
SELECT outcome FROM idem_begin(NULL, scope => 'policy');
-- The same for a change by plain SQL, as a restore makes it.
UPDATE idempotency.policy SET on_missing_key = 'error' WHERE scope_pattern = 'policy';
SELECT outcome FROM idem_begin(NULL, scope => 'policy');
\echo :SQLSTATE
TRUNCATE idempotency.policy;
SELECT outcome FROM idem_begin(NULL, scope => 'policy');

-- fingerprint_required: a request or a fingerprint.
SELECT idem_policy_set('policy', fingerprint_required => true);
SELECT outcome FROM idem_begin('f', scope => 'policy');
\echo :SQLSTATE
SELECT outcome FROM idem_begin('f', '{}', 'policy');
SELECT outcome FROM idem_begin('g', scope => 'policy', fingerprint => '\x01');
-- exclude_fields: these fields do not count. A caller's fingerprint is refused.
SELECT idem_policy_set('policy', exclude_fields => '{sent_at,$.meta.retry,$.items[*].id}', replace => true);
SELECT outcome FROM idem_begin('e', '{"amount": 5, "sent_at": 1, "meta": {"retry": 0, "a": 1}, "items": [{"id": 1, "n": 1}]}', 'policy');
SELECT outcome FROM idem_begin('e', '{"amount": 5, "SENT_AT": 2, "meta": {"retry": 1, "a": 1}, "items": [{"id": 2, "n": 1}]}', 'policy');
SELECT outcome FROM idem_begin('e', '{"amount": 5, "meta": {"a": 2}, "items": [{"n": 1}]}', 'policy');
SELECT outcome FROM idem_begin('e', '{"amount": 5, "meta": {"a": 1}, "items": [{"n": 2}]}', 'policy');
SELECT outcome FROM idem_begin('e', '{"amount": 5, "retry": 0, "meta": {"a": 1}, "items": [{"n": 1}]}', 'policy');
SELECT outcome FROM idem_begin('e', scope => 'policy', fingerprint => idem_fingerprint('{"amount": 5, "meta": {"a": 1}, "items": [{"n": 1}]}'));
-- store_request: off unless wanted, and then whole.
SELECT outcome FROM idem_begin('r-off', '{"amount": 5, "sent_at": 1}', 'policy');
SELECT idem_policy_set('policy', store_request => true, exclude_fields => '{sent_at}', replace => true);
SELECT outcome FROM idem_begin('r-on', '{"amount": 5, "sent_at": 1}', 'policy');
SELECT key, request FROM idempotency.records WHERE scope = 'policy' AND key LIKE 'r-%' ORDER BY key;
-- drop_headers: a list of its own in place of the usual one; an empty one keeps all.
SELECT idem_policy_set('policy', drop_headers => '{x-internal}', replace => true);
BEGIN;
SELECT outcome FROM unnest('{h1,h2}'::text[]) k, idem_begin(k, scope => 'policy');
SELECT idem_complete('h1', headers => '{"X-Internal": "1", "Date": "today", "X-Internals": "2"}', scope => 'policy');
SELECT idem_policy_set('policy', drop_headers => '{}', replace => true);
SELECT idem_complete('h2', headers => '{"X-Internal": "1", "Set-Cookie": "s=1"}', scope => 'policy');
COMMIT;
SELECT key, headers FROM idempotency.records WHERE scope = 'policy' AND key LIKE 'h_' ORDER BY key;

-- max_attempts and backoff.
SELECT idem_policy_set('policy', max_attempts => 2, retry_base => '0', replace => true);
BEGIN;
SELECT outcome, attempt FROM idem_begin('m', scope => 'policy');
SELECT idem_fail('m', retryable => true, scope => 'policy');
SELECT outcome, attempt FROM idem_begin('m', scope => 'policy');
SELECT idem_fail('m', retryable => true, scope => 'policy');
SELECT outcome, attempt FROM idem_begin('m', scope => 'policy');
COMMIT;
SELECT idem_policy_set('policy', max_attempts => 3, retry_base => '1 hour', retry_cap => '1 hour', replace => true);
SELECT outcome, attempt FROM idem_begin('m', scope => 'policy');
-- It also limits attempts that timed out: a request that kills its worker does not run for ever.
SELECT idem_policy_set('policy', max_attempts => 1, lease => '1 min', replace => true);
SELECT outcome, attempt FROM idem_begin('t', scope => 'policy');
SELECT test.let_pass('2 min', 'policy');
SELECT outcome, attempt FROM idem_begin('t', scope => 'policy');
SELECT idem_resolve('t', 'release', 'policy');
SELECT outcome, attempt FROM idem_begin('t', scope => 'policy');
SELECT test.let_pass('2 min', 'policy');
SELECT outcome, attempt FROM idem_begin('t', scope => 'policy');

-- on_lease_expiry => unknown counts if it stands when the lease is found to be over, and if it stood
-- at the claim.
SELECT idem_policy_set('policy', on_lease_expiry => 'takeover', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('x', scope => 'policy');
SELECT test.let_pass('2 min', 'policy');
SELECT idem_policy_set('policy', on_lease_expiry => 'unknown', replace => true);
SELECT outcome FROM idem_begin('x', scope => 'policy');
SELECT outcome FROM idem_begin('y', scope => 'policy');
SELECT test.let_pass('2 min', 'policy');
SELECT idem_policy_set('policy', on_lease_expiry => 'takeover', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('y', scope => 'policy');
-- wait: the default of every caller of the scope.
SELECT idem_policy_set('policy', wait => '20 ms', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('w', scope => 'policy');
SELECT clock_timestamp() AS started \gset
SELECT outcome, clock_timestamp() - :'started' >= interval '20 ms' AS waited FROM idem_begin('w', scope => 'policy');
SET idempotency.default_wait = '1h';
SELECT outcome FROM idem_begin('w', scope => 'policy');
SELECT outcome FROM idem_begin('w', scope => 'policy', wait => '0');
RESET idempotency.default_wait;
SELECT idem_policy_drop('policy', 'a test');

-- allowed_role: members only, also by way of another role, for every call.
CREATE ROLE regress_idem_team;
CREATE ROLE regress_idem_login1 IN ROLE regress_idem_team;
CREATE ROLE regress_idem_login2;
CREATE ROLE regress_idem_nephew IN ROLE regress_idem_login1;
CREATE ROLE regress_idem_noinherit NOINHERIT IN ROLE regress_idem_team;
SELECT idem_grant(r, operator => true)
  FROM unnest('{regress_idem_login1,regress_idem_login2,regress_idem_nephew,regress_idem_noinherit}'::regrole[]) r;
SELECT idem_policy_set('policy-team*', allowed_role => 'regress_idem_team');
SET ROLE regress_idem_login1;
SELECT token FROM idem_begin('k', scope => 'policy-team') \gset
SET ROLE regress_idem_nephew;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
SET ROLE regress_idem_noinherit;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
\echo :SQLSTATE
SET ROLE regress_idem_login2;
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
SELECT outcome FROM idem_begin('new', scope => 'policy-team-b');
SELECT idem_complete('k', scope => 'policy-team', token => :token);
SELECT idem_fail('k', scope => 'policy-team', token => :token);
SELECT idem_extend('k', :token, scope => 'policy-team');
SELECT idem_checkpoint('k', 'here', scope => 'policy-team', token => :token);
SELECT idem_release('k', 'policy-team', token => :token);
SELECT idem_once('k', 'policy-team');
SELECT outcome FROM idem_execute('k', 'echo(jsonb)', '{}', 'policy-team');
SELECT idem_get('k', 'policy-team');
SELECT idem_resolve('k', 'fail', 'policy-team');
SELECT idem_forget('k', 'policy-team');
$$, :token);
SELECT outcome FROM idem_begin('k', scope => 'policy-tea');
RESET ROLE;
-- Membership decides now, not when the claim was begun: login roles can be rotated.
GRANT regress_idem_team TO regress_idem_login2;
REVOKE regress_idem_team FROM regress_idem_login1;
SET ROLE regress_idem_login1;
SELECT idem_complete('k', scope => 'policy-team', token => :token);
\echo :SQLSTATE
SET ROLE regress_idem_login2;
SELECT idem_complete('k', scope => 'policy-team', token => :token);
RESET ROLE;
-- A missing role admits no caller. A later role of the same name admits its members.
SELECT scope_pattern, allowed_role, role_exists FROM idempotency.policies;
SELECT idem_revoke(r)
  FROM unnest('{regress_idem_login1,regress_idem_login2,regress_idem_nephew,regress_idem_noinherit}'::regrole[]) r;
DROP ROLE regress_idem_team, regress_idem_login1, regress_idem_nephew, regress_idem_noinherit;
SELECT scope_pattern, allowed_role, role_exists FROM idempotency.policies;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
\echo :SQLSTATE
SELECT idem_grant('regress_idem_login2');
SET ROLE regress_idem_login2;
\set VERBOSITY terse
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
\echo :SQLSTATE
\set VERBOSITY default
RESET ROLE;
CREATE ROLE regress_idem_team ROLE regress_idem_login2;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
SET ROLE regress_idem_login2;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
RESET ROLE;
-- A renamed role is missing, too, until the policy names the new name.
ALTER ROLE regress_idem_team RENAME TO regress_idem_crew;
SELECT outcome FROM idem_begin('k', scope => 'policy-team');
\echo :SQLSTATE
DROP ROLE regress_idem_crew;
SELECT idem_revoke('regress_idem_login2');
DROP ROLE regress_idem_login2;
SELECT idem_policy_drop('policy-team*', 'a test');

-- Each bad value is refused and leaves the policy as it is.
SELECT idem_policy_set('policy', ttl => '1 hour', retention => '2 hours');
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT idem_policy_set(repeat('x', 256));
SELECT idem_policy_set(E'a\nb');
SELECT idem_policy_set('a*b');
SELECT idem_policy_set('a**');
SELECT idem_policy_set('policy', ttl => '0');
SELECT idem_policy_set('policy', ttl => '-1 s');
SELECT idem_policy_set('policy', ttl => '36526 days');
SELECT idem_policy_set('policy', retention => '0');
SELECT idem_policy_set('policy', ttl => '2 hours', retention => '1 hour');
SELECT idem_policy_set('policy', retention => '1 hour');
SELECT idem_policy_set('policy', lease => '0');
SELECT idem_policy_set('policy', lease => '-1 day');
SELECT idem_policy_set('policy', wait => '-1 s');
SELECT idem_policy_set('policy', wait => '25 hours');
SELECT idem_policy_set('policy', max_attempts => 0);
SELECT idem_policy_set('policy', max_attempts => -1);
SELECT idem_policy_set('policy', retry_base => '-1 s');
SELECT idem_policy_set('policy', retry_cap => '200000 years');
SELECT idem_policy_set('policy', retry_base => '2 min', retry_cap => '1 min');
SELECT idem_policy_set('policy', retry_base => '6 min');
SELECT idem_policy_set('policy', drop_headers => '{Date,"Set Cookie"}');
SELECT idem_policy_set('policy', drop_headers => '{""}');
SELECT idem_policy_set('policy', drop_headers => '{NULL}');
SELECT idem_policy_set('policy', on_lease_expiry => 'Takeover');
SELECT idem_policy_set('policy', on_lease_expiry => '');
SELECT idem_policy_set('policy', on_large_body => 'truncate');
SELECT idem_policy_set('policy', max_body_bytes => -1);
SELECT idem_policy_set('policy', max_body_bytes => 268435457);
SELECT idem_policy_set('policy', exclude_fields => '{ok,$.}');
SELECT idem_policy_set('policy', exclude_fields => '{$.a[0]}');
SELECT idem_policy_set('policy', exclude_fields => '{""}');
SELECT idem_policy_set('policy', allowed_role => 'regress_idem_nobody');
SELECT idem_policy_set(NULL);
SELECT idem_policy_drop(NULL);
$$);
\set VERBOSITY sqlstate
SELECT idem_policy_set('policy', exclude_fields => '{a,NULL}');
\set VERBOSITY terse
-- Nor can they be written by plain SQL, as far as a table can tell.
UPDATE idempotency.policy SET on_lease_expiry = 'maybe';
UPDATE idempotency.policy SET on_large_body = 'truncate';
UPDATE idempotency.policy SET max_attempts = 0;
UPDATE idempotency.policy SET max_body_bytes = -1;
SELECT test.stored() = :'before' AS unchanged;
SELECT idem_policy_drop('policy');
DROP FUNCTION test.spans;
