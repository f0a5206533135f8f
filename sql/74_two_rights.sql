-- Promise: deciding and administering are two rights. Neither implies the other, and both include the
-- protocol. A closed scope stays closed to both, in a transaction that rolls back, too.
\a\pset footer off

CREATE ROLE regress_decider;
CREATE ROLE regress_ruler;
CREATE ROLE regress_vaulted;
CREATE FUNCTION test.callable(name text, OUT functions text) LANGUAGE sql AS $$
    SELECT string_agg(DISTINCT p.proname, ' ' ORDER BY p.proname) FROM pg_proc p, aclexplode(p.proacl) a
     WHERE a.grantee = name::regrole AND p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'idem%' $$;
SELECT idem_grant('regress_decider', operator => true, reason => 'on call'), idem_grant('regress_ruler', administrator => true);
-- What the one may and the other may not.
CREATE TEMPORARY VIEW only_one AS
SELECT who, string_agg(f, ' ' ORDER BY f) AS functions
  FROM (VALUES ('operator', 'regress_decider', 'regress_ruler'), ('administrator', 'regress_ruler', 'regress_decider')) r (who, this, that),
       string_to_table(test.callable(this), ' ') f
 WHERE f <> ALL (string_to_array(test.callable(that), ' ')) GROUP BY 1;
SELECT * FROM only_one;
SELECT string_agg(f, ' ') AS both FROM string_to_table(test.callable('regress_ruler'), ' ') f
 WHERE f = ANY (string_to_array(test.callable('regress_decider'), ' '));
SELECT action, role, before, after, reason FROM idempotency.decisions WHERE role IN ('regress_decider', 'regress_ruler') ORDER BY decided_at;

SELECT idem_policy_set('rights', ttl => '1 day'), idem_policy_set('rights/vault', allowed_role => 'regress_vaulted');
SELECT outcome FROM unnest('{rights,rights/vault}'::text[]) s, idem_begin('k', scope => s, lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SET ROLE regress_decider;
SELECT * FROM refused($$
SELECT idem_policy_set('rights/new', ttl => '1 day');
SELECT idem_policy_alter('rights', ttl => '1 day');
SELECT idem_policy_drop('rights');
SELECT idem_cleanup();
CALL idem_reseal();
SELECT idem_stats_reset();
SELECT idem_grant('regress_decider', administrator => true);
SELECT idem_get('k', 'rights/vault');
SELECT idem_explain('k', scope => 'rights/vault');
SELECT idem_attempts('k', scope => 'rights/vault');
SELECT idem_resolve('k', 'release', 'rights/vault');
SELECT idem_forget('k', 'rights/vault');
SELECT idem_begin('k', scope => 'rights/vault');
$$);
SELECT idem_resolve_idle('k', 'fail', 'rights/vault'), idem_erase('k', 'rights/vault');
SELECT count(*) > 10 AS policy_is_shown FROM idem_policy('rights');
SELECT (idem_explain('k', scope => 'rights')).outcome, idem_resolve('k', 'fail', 'rights', error => 'no'), idem_once('k2', 'rights');
SELECT idem_forget('k', 'rights');

SET ROLE regress_ruler;
SELECT * FROM refused($$
SELECT idem_explain('k2', scope => 'rights');
SELECT idem_attempts('k2', scope => 'rights');
SELECT idem_resolve('k2', 'fail', 'rights');
SELECT idem_resolve_idle('k2', 'fail', 'rights');
SELECT idem_forget('k2', 'rights');
SELECT idem_erase('k2', 'rights');
SELECT idem_erase_decisions('p');
SELECT idem_await_claims('p');
CALL idem_resolve_all('fail', scope => 'rights');
CALL idem_forget_principal('p');
SELECT idem_grant('regress_ruler', operator => true);
SELECT idem_get('k', 'rights/vault');
SELECT idem_policy_alter('rights/vault', unset => '{allowed_role}');
SELECT idem_policy_drop('rights/vault');
SELECT idem_begin('k', scope => 'rights/vault');
$$);
SELECT idem_policy_alter('rights', ttl => '2 days'), idem_cleanup() >= 0 AS cleaned, idem_once('k3', 'rights');
-- Not even for a moment.
BEGIN;
SELECT idem_policy_set('rights/vault*', ttl => '1 day');
SAVEPOINT s;
SELECT idem_policy_alter('rights/vault', allowed_role => 'regress_ruler');
ROLLBACK TO s;
SELECT idem_get('k', 'rights/vault');
ROLLBACK;
RESET ROLE;

-- Each is added to what a role has, and all are taken at once.
SELECT idem_grant('regress_decider', administrator => true, reason => 'a small team'), idem_grant('regress_ruler');
SELECT * FROM only_one;
SELECT idem_revoke('regress_decider'), idem_revoke('regress_ruler');
SELECT test.callable('regress_decider'), test.callable('regress_ruler');
SELECT action, role, before, after FROM idempotency.decisions WHERE role IN ('regress_decider', 'regress_ruler') ORDER BY decided_at DESC LIMIT 4;
-- A null is no right.
SELECT idem_grant('regress_ruler', NULL, administrator => NULL);
SELECT test.callable('regress_ruler') ~ 'idem_begin' AS protocol, test.callable('regress_ruler') ~ 'idem_resolve|idem_policy' AS more;
SELECT idem_revoke('regress_ruler');

DELETE FROM idempotency.record WHERE scope LIKE 'rights%';
TRUNCATE idempotency.policy, idempotency.audit;
DROP VIEW only_one;
DROP FUNCTION test.callable;
DROP ROLE regress_decider, regress_ruler, regress_vaulted;
