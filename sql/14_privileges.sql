-- Promise: a role with idem_grant can use the whole protocol and nothing else. It reads no table, and
-- never gets the owner's rights that the functions use.
\a\pset footer off

CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_other;
CREATE ROLE "regress idem ""odd'";

-- Before: only the pure helpers.
SET SESSION AUTHORIZATION regress_idem_app;
SELECT idem_key('a', 'b'), idem_http_status('expired'), length(idem_fingerprint('{}')) AS fingerprint_bytes,
       idem_parse_key('"k"'), idem_event_id('e', 'r', 'epoch'), idem_backoff(1, '1 s', '1 s'),
       idem_problem('missing_key') ->> 'status' AS problem, (idem_response(200, NULL, 'x'::text)).status_code;
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'privileges');
SELECT idem_once('k', 'privileges');
SELECT outcome FROM idem_execute('k', 'echo(jsonb)', '{}', 'privileges');
SELECT idem_get('k', 'privileges');
$$);
RESET SESSION AUTHORIZATION;
SELECT idem_grant('regress_idem_app');
SELECT idem_grant('regress_idem_app');
SELECT idem_grant(oid::regrole) FROM pg_roles WHERE rolname = 'regress idem "odd''';
-- The rights that it has now.
SELECT p.oid::regprocedure AS granted
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON d.refobjid = e.oid AND e.extname = 'idempotency'
 CROSS JOIN aclexplode(p.proacl) a
 WHERE a.grantee = 'regress_idem_app'::regrole ORDER BY p.oid::regprocedure::text COLLATE "C";

-- The whole protocol, also writes at the end of the transaction.
SET SESSION AUTHORIZATION regress_idem_app;
BEGIN;
SELECT outcome FROM idem_begin('completed', '{"amount": 5}', 'privileges');
SELECT idem_complete('completed', 201, 'made', scope => 'privileges');
SELECT outcome FROM idem_begin('failed', scope => 'privileges');
SELECT idem_fail('failed', 'declined', scope => 'privileges');
SELECT token FROM idem_begin('leased', scope => 'privileges', hold => true) \gset
COMMIT;
SELECT outcome, status_code FROM idem_begin('completed', '{"amount": 5}', 'privileges');
SELECT outcome, error FROM idem_begin('failed', scope => 'privileges');
SELECT outcome FROM idem_begin('leased', scope => 'privileges');
SELECT idem_extend('leased', :token, '1 hour', 'privileges') > now() AS prolonged;
SELECT idem_checkpoint('leased', 'here', '{}', 'privileges', token => :token) > now() AS prolonged;
SELECT recovery_point, token IS NULL AS no_token FROM idem_get('leased', 'privileges');
SELECT idem_release('leased', 'privileges', token => :token);
SELECT idem_once('once', 'privileges'), idem_once('once', 'privileges');
SELECT outcome FROM idem_execute('executed', 'echo(jsonb)', '{}', 'privileges');

-- Tables, views and everything for operators are closed.
SELECT * FROM refused($$
SELECT * FROM idempotency.record;
SELECT * FROM idempotency.records;
SELECT * FROM idempotency.policy;
DELETE FROM idempotency.record;
SELECT idempotency.policy_changed();
SELECT idem_resolve('completed', 'fail', 'privileges');
SELECT idem_forget('completed', 'privileges');
SELECT idem_cleanup();
SELECT idem_policy_set('privileges', ttl => '1 s');
SELECT idem_policy_drop('privileges');
SELECT idem_stats_reset();
SELECT idem_grant('regress_idem_other');
SELECT idem_revoke('regress_idem_app');
$$);
-- Nor after an error within a call, whose identity is restored.
DO $$
BEGIN
    PERFORM idem_complete('nobody', scope => 'privileges');
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE '% as %, %', sqlstate, current_user, has_schema_privilege('idempotency', 'usage');
END $$;
-- A limit that only an administrator may raise.
SET idempotency.max_body_bytes = '256MB';
\echo :SQLSTATE
RESET SESSION AUTHORIZATION;

-- The current user counts: with SET ROLE, and in a SECURITY DEFINER function.
SET ROLE regress_idem_other;
SELECT outcome FROM idem_begin('completed', scope => 'privileges');
\echo :SQLSTATE
RESET ROLE;
CREATE FUNCTION test.begin_as_definer(key text) RETURNS text LANGUAGE sql SECURITY DEFINER
    SET search_path = public AS $$ SELECT outcome FROM idem_begin(key, scope => 'privileges') $$;
ALTER FUNCTION test.begin_as_definer OWNER TO regress_idem_app;
GRANT USAGE ON SCHEMA test TO regress_idem_other;
SET SESSION AUTHORIZATION regress_idem_other;
SELECT test.begin_as_definer('by definer'), test.begin_as_definer('completed');
SELECT outcome FROM idem_begin('by definer', scope => 'privileges');
\echo :SQLSTATE
RESET SESSION AUTHORIZATION;
SELECT status FROM idempotency.records WHERE (scope, key) = ('privileges', 'by definer');
DROP FUNCTION test.begin_as_definer;
REVOKE USAGE ON SCHEMA test FROM regress_idem_other;

-- The principal keeps callers apart: another one has its own record, and sees nothing of this one.
SELECT idem_grant('regress_idem_other');
SET SESSION AUTHORIZATION regress_idem_app;
SELECT token FROM idem_begin('shared', '{"amount": 5}', 'privileges', principal => session_user) \gset
SET SESSION AUTHORIZATION regress_idem_other;
SELECT outcome, principal FROM idem_begin('shared', '{"amount": 6}', 'privileges', principal => session_user);
SELECT idem_complete('shared', scope => 'privileges', principal => session_user, token => :token);
\echo :SQLSTATE
RESET SESSION AUTHORIZATION;

-- Operators get their functions, and still no table. Who resolved is the session's user.
SELECT idem_grant('regress_idem_other', operator => true, administrator => true);
SET SESSION AUTHORIZATION regress_idem_other;
SELECT idem_policy_set('privileges', ttl => '1 hour');
SELECT idem_policy_drop('privileges');
SELECT idem_resolve('shared', 'complete', 'privileges', 'regress_idem_app');
SELECT idem_forget('failed', 'privileges');
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT * FROM refused($$
SELECT * FROM idempotency.record;
SELECT idem_grant('regress_idem_other');
$$);
RESET SESSION AUTHORIZATION;
SELECT principal, status, resolved_by FROM idempotency.records
 WHERE (scope, key) = ('privileges', 'shared') ORDER BY principal;

-- All rights are revoked at once. The role's records stay.
SELECT idem_revoke(r) FROM unnest('{regress_idem_app,regress_idem_other}'::regrole[]) r;
SELECT idem_revoke('regress_idem_app');
SET SESSION AUTHORIZATION regress_idem_other;
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('completed', scope => 'privileges');
SELECT idem_forget('completed', 'privileges');
$$);
RESET SESSION AUTHORIZATION;
SELECT outcome FROM idem_begin('completed', '{"amount": 5}', 'privileges');
SELECT idem_revoke(oid::regrole) FROM pg_roles WHERE rolname = 'regress idem "odd''';

-- Roles that can't be granted to.
SELECT * FROM refused($$
SELECT idem_grant('regress_idem_nobody');
SELECT idem_grant(4294967295::oid::regrole);
SELECT idem_grant(NULL);
SELECT idem_revoke(NULL);
$$);
DROP ROLE regress_idem_app, regress_idem_other, "regress idem ""odd'";
