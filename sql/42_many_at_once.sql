-- Promise: an operator decides, or forgets, many records with one call, which commits after each batch,
-- reports the numbers, and skips running executions.
\a\pset footer off

CREATE ROLE regress_idem_support;
CREATE ROLE regress_idem_app;
SELECT idem_grant('regress_idem_support', operator => true), idem_grant('regress_idem_app');
TRUNCATE idempotency.audit;
SELECT idem_policy_set('many-unknown', on_lease_expiry => 'unknown');

-- In each of two scopes: claims that were abandoned, one that lives, one that has failed and is to be
-- tried again, and two that are over.
CREATE FUNCTION test.fill() RETURNS TABLE (outcome text, count bigint) LANGUAGE sql AS $$
    SELECT outcome, count(*)
      FROM unnest('{many,many-unknown}'::text[]) s, unnest('{left-1,left-2,left-3,lives,failed,done,gone}'::text[]) k,
           idem_begin(k, scope => s, principal => 'many-shop', lease => '1 hour', holder => CASE k WHEN 'left-3' THEN 'w-2' ELSE 'w-1' END) c
     GROUP BY 1 $$;
CREATE FUNCTION test.settle() RETURNS void LANGUAGE sql AS $$
    SELECT idem_fail(key, 'busy', true, scope => scope, principal => principal, token => token, retry_after => '1 hour')
      FROM idempotency.record WHERE key = 'failed' AND scope LIKE 'many%';
    SELECT idem_complete(key, scope => scope, principal => principal, token => token)
      FROM idempotency.record WHERE key = 'done' AND scope LIKE 'many%';
    SELECT idem_fail(key, scope => scope, principal => principal, token => token)
      FROM idempotency.record WHERE key = 'gone' AND scope LIKE 'many%';
    UPDATE idempotency.record SET lease_until = now(), claimed_at = now() - interval '2 hours' WHERE key LIKE 'left-%' AND scope LIKE 'many%' $$;
CREATE VIEW test.many AS
SELECT scope, string_agg(key || ' ' || status, ', ' ORDER BY key) AS records
  FROM idempotency.records WHERE scope LIKE 'many%' GROUP BY scope ORDER BY scope;
SELECT * FROM test.fill();
SELECT test.settle();
SELECT * FROM test.many;

SET SESSION AUTHORIZATION regress_idem_support;
-- One holder's, then a scope's that are unknown, of some age. A live claim does not match there.
CALL idem_resolve_all('release', 'w-2 is gone', scope => 'many*', holder => 'w-2', older_than => '1 hour');
CALL idem_resolve_all('fail', scope => 'many-unknown', status => 'unknown', older_than => '3 hours');
CALL idem_resolve_all('fail', scope => 'many-unknown', status => 'unknown', older_than => '1 hour', status_code => 410, body => 'gone', error => 'the bank has none', batch_size => 1);
-- Running records are refused and reported. Unknown records are not in progress.
CALL idem_resolve_all('complete', status => 'in_progress', principal => 'many-shop', scope => 'many*');
CALL idem_resolve_all('complete', status => 'retryable', principal => 'other');
CALL idem_resolve_all('complete', status => 'retryable', principal => 'many-shop', scope => 'many', status_code => 201);
CALL idem_resolve_all('release', scope => 'many*');
-- Released records are not released again.
CALL idem_resolve_all('release', scope => 'many*', status => 'retryable');
RESET SESSION AUTHORIZATION;
SELECT * FROM test.many;
SELECT scope, key, status_code, convert_from(body, 'UTF8') AS body, error FROM idempotency.records
 WHERE scope LIKE 'many%' AND resolved_by = 'regress_idem_support' ORDER BY scope, key;
-- Each has its row in the audit.
SELECT action, scope, before ->> 'status' AS before, after ->> 'status' AS after, reason, count(*), string_agg(DISTINCT decided_by, ' ') AS decided_by
  FROM idempotency.decisions WHERE action <> 'policy_set' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4;

-- Refused before anything is done.
CALL idem_resolve_all('release');
\echo :SQLSTATE
CALL idem_resolve_all('restart', scope => '*');
\echo :SQLSTATE
CALL idem_resolve_all('release', scope => '*', status_code => 200);
\echo :SQLSTATE
CALL idem_resolve_all('release', status => 'completed');
\echo :SQLSTATE
CALL idem_resolve_all('release', scope => '*', batch_size => 0);
\echo :SQLSTATE
CALL idem_resolve_all('release', scope => '*', older_than => '-1 s');
\echo :SQLSTATE
CALL idem_forget_principal(NULL);
\echo :SQLSTATE
CALL idem_forget_principal('');
\echo :SQLSTATE
CALL idem_forget_principal('many-shop', batch_size => 10001);
\echo :SQLSTATE
-- It commits, so it is alone.
BEGIN;
CALL idem_resolve_all('release', scope => '*');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
CALL idem_forget_principal('many-shop');
\echo :SQLSTATE
ROLLBACK;
CREATE FUNCTION test.in_function() RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE ''CALL idem_forget_principal(''''many-shop'''')''; END';
\set VERBOSITY sqlstate
SELECT test.in_function();
-- Nor where an error would have to be undone.
DO $$
DECLARE
    forgotten bigint; running bigint; running_keys jsonb; closed bigint; closed_scopes jsonb; decisions bigint; complete boolean;
BEGIN
    CALL idem_forget_principal('many-shop', NULL, 1, forgotten, running, running_keys, closed, closed_scopes, decisions, complete);
EXCEPTION WHEN active_sql_transaction THEN
    RAISE;
END $$;
BEGIN READ ONLY;
CALL idem_forget_principal('many-shop');
ROLLBACK;
SET default_transaction_read_only = on;
CALL idem_forget_principal('many-shop');
RESET default_transaction_read_only;
-- It needs a right.
SET SESSION AUTHORIZATION regress_idem_app;
CALL idem_resolve_all('release', scope => '*');
CALL idem_forget_principal('many-shop');
SELECT idem_resolve_idle('lives', 'release', 'many', 'many-shop');
SELECT idem_erase('lives', 'many', 'many-shop');
SELECT idem_erase_decisions('many-shop');
RESET SESSION AUTHORIZATION;
\set VERBOSITY default

-- Scopes that are reserved for other roles, or for a dropped one, are left as they are, and told with the
-- roles that they admit. All else is done, whatever stands between.
CREATE ROLE regress_idem_gone;
SELECT idem_policy_set('many-closed', allowed_role => 'regress_idem_app', keep_history => true),
       idem_policy_set('many-lost', allowed_role => 'regress_idem_gone'), idem_policy_set('many-open', keep_history => true);
SELECT count(*) FROM (SELECT FROM unnest('{1,2}'::text[]) k, unnest('{many-closed,many-open,many-lost}'::text[]) s, idem_begin(s || k, scope => s, principal => 'mall') OFFSET 0) b;
SELECT idem_once('once', scope => s, principal => 'mall') FROM unnest('{many-closed,many-open}'::text[]) s;
DROP ROLE regress_idem_gone;
UPDATE idempotency.record SET lease_until = now() WHERE principal = 'mall' AND status = 'i' AND key <> 'many-open2';
SET SESSION AUTHORIZATION regress_idem_support;
SELECT idem_resolve_idle('many-closed1', 'release', 'many-closed', 'mall') AS reserved, idem_resolve_idle('many-lost1', 'release', 'many-lost', 'mall') AS nobodys,
       idem_resolve_idle('many-open1', 'release', 'many-open', 'mall') AS open, idem_resolve_idle('absent', 'release', 'many-closed', 'mall') AS absent,
       idem_erase('many-closed1', 'many-closed', 'mall') AS erased;
CALL idem_resolve_all('release', scope => 'many-*', principal => 'mall', batch_size => 1);
CALL idem_resolve_all('release', scope => 'many-closed');
CALL idem_forget_principal('mall', 'ticket 6', batch_size => 1);
RESET SESSION AUTHORIZATION;
SELECT key, status FROM idempotency.records WHERE principal = 'mall' ORDER BY key;
-- So is the history there, also of keys whose records are gone.
DELETE FROM idempotency.record WHERE (scope, key) = ('many-closed', 'once');
SELECT scope, key FROM idempotency.attempts WHERE principal = 'mall';
SELECT after FROM idempotency.decisions WHERE action = 'erase' AND after ? 'forgotten' ORDER BY decided_at;
SELECT idem_policy_drop('many-lost', 'a test');
GRANT regress_idem_app TO regress_idem_support;
SET SESSION AUTHORIZATION regress_idem_support;
CALL idem_forget_principal('mall', 'ticket 6');
RESET SESSION AUTHORIZATION;
UPDATE idempotency.record SET lease_until = now() WHERE principal = 'mall';
REVOKE regress_idem_app FROM regress_idem_support;
-- The rest may be history alone.
SELECT outcome FROM idem_begin('late', scope => 'many-closed', principal => 'mall', lease => '1 us');
SELECT idem_resolve('late', 'fail', scope => 'many-closed', principal => 'mall');
DELETE FROM idempotency.record WHERE (scope, key) = ('many-closed', 'late');
SET SESSION AUTHORIZATION regress_idem_support;
CALL idem_forget_principal('mall', 'ticket 6');
RESET SESSION AUTHORIZATION;
CALL idem_forget_principal('mall', 'ticket 6');
SELECT count(*) FROM idempotency.attempts WHERE principal = 'mall';

-- A hundred scopes are named, and all records counted.
SELECT idem_policy_set('many/*', allowed_role => 'regress_idem_app');
SELECT count(*) FROM (SELECT FROM generate_series(1, 101) s, generate_series(1, 2) k, idem_begin('k' || k, scope => 'many/' || s, principal => 'mall') OFFSET 0) b;
SET SESSION AUTHORIZATION regress_idem_support;
CALL idem_forget_principal('mall') \gset
RESET SESSION AUTHORIZATION;
SELECT :forgotten AS forgotten, :closed AS closed, jsonb_array_length(:'closed_scopes') AS named, :'complete' AS complete;
SELECT count(*) FROM idempotency.record WHERE principal = 'mall';
DELETE FROM idempotency.record WHERE principal = 'mall';
SELECT idem_policy_drop('many/*', 'a test');

-- What can't be decided for a reason of its own stops nothing either, and is told with the reason: a
-- policy that nobody can make sense of closes its scope, of one record the key is missing, of another
-- the answer is too large. Each is as it was, and its key is not locked.
SELECT idem_policy_set('many-broken', keep_history => true), idem_policy_set('many-small', max_body_bytes => 5);
SELECT count(*) FROM (SELECT FROM unnest('{1,2}'::text[]) k, unnest('{many-broken,many-small,many-sealed,many-plain}'::text[]) s,
    idem_begin(s || k, scope => s, principal => 'torn', holder => 'h', lease => '1 us') OFFSET 0) b;
SELECT idem_once('once', 'many-broken', 'torn');
SELECT idem_begin('bare', scope => 'many-sealed', principal => 'torn', lease => '1 us') IS NULL;
SELECT idem_policy_set('many-sealed', encrypt => true);
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_fingerprint_fields_given;
UPDATE idempotency.policy SET fingerprint_fields = '{}' WHERE scope_pattern = 'many-broken';
SET SESSION AUTHORIZATION regress_idem_support;
BEGIN;
SELECT idem_resolve_idle('many-broken1', 'fail', 'many-broken', 'torn') AS invalid, idem_resolve_idle('many-sealed1', 'fail', 'many-sealed', 'torn') AS sealed,
       idem_resolve_idle('many-small1', 'fail', 'many-small', 'torn', body => 'too much') AS large_body,
       idem_resolve_idle('many-small1', 'fail', 'many-small', 'torn', headers => '{"X-Too": "much"}') AS large_headers,
       idem_erase('many-broken1', 'many-broken', 'torn') AS erased;
RESET SESSION AUTHORIZATION;
SELECT keys FROM test.locks();
COMMIT;
SET SESSION AUTHORIZATION regress_idem_support;
CALL idem_resolve_all('fail', 'ticket 8', principal => 'torn', body => 'too much', error => 'gone', batch_size => 1);
RESET SESSION AUTHORIZATION;
SELECT key, status, error FROM idempotency.records WHERE principal = 'torn' ORDER BY key;
SELECT scope, count(*) FROM idempotency.decisions WHERE reason = 'ticket 8' GROUP BY 1;
-- Records that fit, and those that need no key, are decided.
CALL idem_resolve_all('fail', principal => 'torn', body => 'fits', headers => '{"Set-Cookie": "is dropped"}');
CALL idem_resolve_all('release', scope => 'many-sealed');
-- An erasure needs no key; the scope that is closed to everybody, and its history, it leaves, and says so.
CALL idem_forget_principal('torn', 'ticket 8', batch_size => 1);
SELECT scope, key FROM idempotency.attempts WHERE principal = 'torn';
SELECT after FROM idempotency.decisions WHERE action = 'erase' AND after ? 'forgotten' AND reason = 'ticket 8';
SELECT idem_policy_drop('many-broken');
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_fingerprint_fields_given CHECK (pg_catalog.cardinality(fingerprint_fields) OPERATOR(pg_catalog.>) 0);
CALL idem_forget_principal('torn');
SELECT count(*) FROM idempotency.attempts WHERE principal = 'torn';
SELECT idem_policy_drop('many-small', 'a test'), idem_policy_drop('many-sealed', 'a test');

-- Functions of users that are called alike, with other arguments, are none of ours.
CREATE FUNCTION public.idem_resolve_idle(integer) RETURNS text LANGUAGE sql RETURN 'passed';
CREATE FUNCTION public.idem_erase(integer) RETURNS text LANGUAGE sql RETURN 'passed';
SELECT outcome FROM idem_begin('k', scope => 'many', principal => 'alike', lease => '1 us');
CALL idem_resolve_all('release', principal => 'alike');
CALL idem_forget_principal('alike');
DROP FUNCTION public.idem_resolve_idle(integer), public.idem_erase(integer);

-- From a procedure or a DO block that may commit as well; it also commits the caller's open work.
DO $$
DECLARE
    resolved bigint; running bigint; running_keys jsonb; closed bigint; closed_scopes jsonb; undecided bigint; undecided_scopes jsonb;
BEGIN
    PERFORM idem_begin('mine', scope => 'many', principal => 'me');
    CALL idem_resolve_all('release', NULL, 'many', 'me', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 500, resolved, running, running_keys, closed, closed_scopes, undecided, undecided_scopes);
    RAISE NOTICE '%', resolved;
    PERFORM idem_begin('mine too', scope => 'many', principal => 'me');
    CALL idem_resolve_all('release', NULL, 'many', 'me', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 500, resolved, running, running_keys, closed, closed_scopes, undecided, undecided_scopes);
    RAISE NOTICE '%', resolved;
END $$;
SELECT key, status FROM idempotency.records WHERE principal = 'me' ORDER BY key;

-- The functions for one key. The state that was seen must still be there.
SELECT idem_resolve_idle('absent', 'release', 'many', 'many-shop') AS absent, idem_resolve_idle('done', 'release', 'many', 'many-shop') AS final,
       idem_resolve_idle('lives', 'release', 'many', 'many-shop') AS alive, idem_resolve_idle('failed', 'fail', 'many-unknown', 'many-shop', status => 'unknown') AS other_status,
       idem_resolve_idle('failed', 'fail', 'many-unknown', 'many-shop', claimed_at => 'epoch') AS other_claim;
-- Where the row guards its key, the lock goes at once: a batch needs no lock for each of its keys.
BEGIN;
SELECT idem_resolve_idle('failed', 'fail', 'many-unknown', 'many-shop', status => 'retryable', claimed_at => claimed_at)
  FROM idempotency.record WHERE (scope, key) = ('many-unknown', 'failed');
SELECT keys = test.by_store(0, 1) AS given_back FROM test.locks();
COMMIT;

-- A principal is forgotten: every record that nobody is at work on, and its names in the audit. What was
-- decided, and why, stays.
SET idempotency.log_keys = on;
SELECT idem_forget('failed', 'many', 'many-shop', 'by hand'), idem_resolve('mine', 'fail', 'many', 'me');
RESET idempotency.log_keys;
SELECT count(*) AS decisions FROM idempotency.decisions WHERE principal = 'many-shop' \gset
SET SESSION AUTHORIZATION regress_idem_support;
CALL idem_forget_principal('many-shop', 'ticket 7', batch_size => 3);
RESET SESSION AUTHORIZATION;
SELECT * FROM test.many;
SELECT count(*) - :decisions - 11 AS others, count(*) FILTER (WHERE principal IS NOT NULL OR key IS NOT NULL OR key_digest IS NOT NULL) AS named
  FROM idempotency.decisions WHERE erased;
SELECT count(*) FROM idempotency.audit a WHERE a::text ~ 'many-shop';
SELECT action, after, reason, erased FROM idempotency.decisions WHERE action = 'erase' ORDER BY decided_at;
SELECT action, scope, principal, key, reason FROM idempotency.decisions WHERE reason = 'by hand' OR principal = 'me' ORDER BY decided_at;
-- Again when the others have ended; the record of another principal is not touched.
UPDATE idempotency.record SET lease_until = now() WHERE principal = 'many-shop';
CALL idem_forget_principal('many-shop');
CALL idem_forget_principal('nobody');
SELECT * FROM test.many;

-- In any isolation level.
SET default_transaction_isolation = serializable;
SELECT outcome FROM idem_begin('strict', scope => 'many', principal => 'strict', lease => '1 us');
CALL idem_resolve_all('release', principal => 'strict', batch_size => 1);
CALL idem_forget_principal('strict', batch_size => 1);
RESET default_transaction_isolation;

DROP VIEW test.many;
DROP FUNCTION test.fill, test.settle, test.in_function;
SELECT idem_policy_drop('many-unknown', 'a test'), idem_policy_drop('many-closed', 'a test'), idem_policy_drop('many-open', 'a test'), idem_revoke('regress_idem_support'), idem_revoke('regress_idem_app');
TRUNCATE idempotency.audit, idempotency.record;
DROP ROLE regress_idem_support, regress_idem_app;
