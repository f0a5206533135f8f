-- Promise: an abandoned claim gets the status that its policy names, when it has been silent for as long
-- as the policy says, and no other claim does. (idem_cleanup acts like a sweeper.)
\a\pset footer off
SET statement_timeout = '30 s';

CREATE FUNCTION test.claims(in_scope text) RETURNS TABLE (key text, status text, attempt integer, status_code integer, error text, lease boolean, kept boolean) LANGUAGE sql AS $$
    SELECT r.key, r.status, r.attempt, r.status_code, r.error, r.lease_until IS NOT NULL, r.expires_at IS NULL
      FROM idempotency.records r WHERE scope = in_scope ORDER BY key $$;

-- Records that other files have left.
SELECT idem_cleanup() \gset
-- Without the option a claim stays.
SELECT outcome FROM idem_begin('k', scope => 'abandon-none');
SELECT test.let_pass('1 year', 'abandon-none');
SELECT idem_cleanup();
SELECT * FROM test.claims('abandon-none');

-- fail: a final failure, which is replayed for the whole ttl from now.
SELECT idem_policy_set('abandon-fail', abandon_after => '1 hour', on_abandon => 'fail', ttl => '1 day');
SELECT token FROM idem_begin('k', '{"a": 1}', 'abandon-fail') \gset
SELECT test.let_pass('58 min', 'abandon-fail');
SELECT idem_cleanup();
SELECT * FROM test.claims('abandon-fail');
SELECT test.let_pass('2 days', 'abandon-fail');
SELECT idem_cleanup();
SELECT * FROM test.claims('abandon-fail');
SELECT outcome, status, status_code, error, idem_problem(c) ->> 'status' AS problem FROM idem_begin('k', '{"a": 1}', 'abandon-fail') c;
SELECT expires_at - finished_at AS replayed_for FROM idempotency.record WHERE scope = 'abandon-fail';
SELECT idem_complete('k', 200, scope => 'abandon-fail', token => :token);
\echo :SQLSTATE
SELECT resolved_by FROM idempotency.records WHERE scope = 'abandon-fail';

-- release: the next caller executes, as after a failure; with its recovery point, and no attempt beyond max_attempts.
SELECT idem_policy_set('abandon-release', abandon_after => '1 hour', on_abandon => 'release', on_lease_expiry => 'unknown', max_attempts => 2);
SELECT token FROM idem_begin('k', scope => 'abandon-release') \gset
SELECT idem_checkpoint('k', 'half', scope => 'abandon-release', token => :token) IS NOT NULL AS noted;
SELECT test.let_pass('2 hours', 'abandon-release');
SELECT outcome FROM idem_begin('k', scope => 'abandon-release');
SELECT idem_cleanup();
SELECT * FROM test.claims('abandon-release');
SELECT idem_extend('k', :token, scope => 'abandon-release');
\echo :SQLSTATE
SELECT outcome, attempt, recovery_point FROM idem_begin('k', scope => 'abandon-release');
SELECT test.let_pass('2 hours', 'abandon-release');
SELECT idem_cleanup();
SELECT * FROM test.claims('abandon-release');
SELECT outcome, error FROM idem_begin('k', scope => 'abandon-release');
SELECT idem_resolve('k', 'release', 'abandon-release');
SELECT outcome, attempt FROM idem_begin('k', scope => 'abandon-release');

-- unknown, also by default: no caller takes it over any more, and its holder may still end it.
SELECT idem_policy_set('abandon-unknown', abandon_after => '1 hour', lease => '1 min');
SELECT token FROM idem_begin('k', scope => 'abandon-unknown') \gset
SELECT outcome FROM idem_begin('taken', scope => 'abandon-unknown');
SELECT test.let_pass('30 min', 'abandon-unknown');
SELECT idem_cleanup();
SELECT outcome FROM idem_begin('taken', scope => 'abandon-unknown');
SELECT test.let_pass('50 min', 'abandon-unknown');
SELECT idem_cleanup();
SELECT key, status FROM test.claims('abandon-unknown');
SELECT outcome FROM idem_begin('k', scope => 'abandon-unknown');
SELECT outcome FROM idem_begin('taken', scope => 'abandon-unknown');
SELECT idem_complete('k', 200, scope => 'abandon-unknown', token => :token);
SELECT key, status FROM test.claims('abandon-unknown');

-- Live claims are left alone: with a prolonged lease, held by a session, open in a transaction.
SELECT idem_policy_set('abandon-lives', abandon_after => '1 hour', on_abandon => 'fail');
SELECT token FROM idem_begin('prolonged', scope => 'abandon-lives') \gset
SELECT outcome FROM idem_begin('held', scope => 'abandon-lives', hold => true);
SELECT outcome FROM idem_begin('forgotten', scope => 'abandon-lives');
SELECT test.let_pass('2 hours', 'abandon-lives');
SELECT idem_extend('prolonged', :token, scope => 'abandon-lives') > now() AS prolonged;
BEGIN;
SELECT outcome FROM idem_begin('open', scope => 'abandon-lives');
SELECT idem_cleanup();
SELECT key, status FROM test.claims('abandon-lives') WHERE key <> 'open';
ROLLBACK;
SELECT key, status FROM test.claims('abandon-lives');
SELECT test.locks();
BEGIN;
SELECT idem_cleanup();
SELECT test.locks() = 0 OR test.by_store(false, true) AS given_back;
ROLLBACK;
SELECT key, status FROM test.claims('abandon-lives');
-- A session that has ended is none, but its lease and the time after it count.
UPDATE idempotency.record SET backend_start = 'epoch' WHERE scope = 'abandon-lives' AND key = 'held';
SELECT idem_cleanup();
SELECT key, status FROM test.claims('abandon-lives');

-- Records with a result are none, whatever their age; nor is what a policy does not name that can't be gone by,
-- or another that comes first.
SELECT idem_policy_set('abandon-*', abandon_after => '1 hour', on_abandon => 'fail');
SELECT idem_policy_set('abandon-other', lease => '1 min');
SELECT outcome FROM unnest('{abandon-these,abandon-other,abandon-broken}'::text[]) s, idem_begin('k', scope => s);
SELECT idem_policy_set('abandon-broken', abandon_after => '1 hour', on_abandon => 'fail');
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_on_abandon_known;
UPDATE idempotency.policy SET on_abandon = 'perhaps' WHERE scope_pattern = 'abandon-broken';
SELECT test.let_pass('2 hours', s) FROM unnest('{abandon-these,abandon-other,abandon-broken}'::text[]) s;
SELECT idem_cleanup();
SELECT scope, status FROM idempotency.records WHERE scope IN ('abandon-these', 'abandon-other', 'abandon-broken') ORDER BY scope COLLATE "C";
SELECT idem_policy_drop('abandon-broken');
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_on_abandon_known
    CHECK (on_abandon OPERATOR(pg_catalog.=) ANY ('{fail,release,unknown}'::text[]));
-- No role is asked for: an administrator cleans up every scope, as expired records are removed from every scope.
CREATE ROLE regress_idem_cleaner;
SELECT idem_grant('regress_idem_cleaner', administrator => true);
SELECT idem_policy_set('abandon-reserved', abandon_after => '1 hour', on_abandon => 'fail');
SELECT outcome FROM idem_begin('k', scope => 'abandon-reserved');
SELECT idem_policy_alter('abandon-reserved', allowed_role => session_user::regrole);
SELECT test.let_pass('2 hours', 'abandon-reserved');
SET ROLE regress_idem_cleaner;
SELECT idem_cleanup();
RESET ROLE;
SELECT * FROM test.claims('abandon-reserved');

-- In batches: at most max_rows, and the others by the next calls.
SELECT idem_policy_set('abandon-many', abandon_after => '1 hour', on_abandon => 'fail');
SELECT count((idem_begin('k' || n, scope => 'abandon-many')).outcome) FROM generate_series(1, 500) n;
SELECT test.let_pass('2 hours', 'abandon-many');
CREATE FUNCTION test.failed() RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(*) FROM idempotency.records WHERE scope = 'abandon-many' AND status = 'failed' $$;
SELECT idem_cleanup(7);
SELECT test.failed();
SELECT idem_cleanup(400);
SELECT test.failed();
SELECT idem_cleanup(NULL);
SELECT test.failed();

-- Counted by scope, where there are counters.
SELECT option, value FROM idem_policy('abandon-many') WHERE option LIKE '%abandon%';
SELECT option, value FROM idem_policy('elsewhere') WHERE option LIKE '%abandon%';
SELECT * FROM refused($$
SELECT idem_policy_set('abandon-many', abandon_after => '0');
SELECT idem_policy_set('abandon-many', on_abandon => 'forget');
$$);
SELECT idem_revoke('regress_idem_cleaner');
DROP ROLE regress_idem_cleaner;
DELETE FROM idempotency.record WHERE scope LIKE 'abandon-%';
TRUNCATE idempotency.policy;
DROP FUNCTION test.claims, test.failed;
