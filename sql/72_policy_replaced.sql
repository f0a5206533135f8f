-- Promise: idem_policy_set does not reset what an existing policy says, unless it is told to. A call that
-- changes nothing is accepted and writes nothing, so a migration may run twice.
\a\pset footer off

CREATE ROLE regress_replacer;
CREATE FUNCTION test.decisions(OUT decisions bigint) LANGUAGE sql AS
    $$ SELECT count(*) FROM idempotency.audit WHERE scope LIKE 'replaced%' $$;
CREATE FUNCTION test.migrate() RETURNS void LANGUAGE sql AS $$
    SELECT idem_policy_set('replaced', ttl => '24 hours', max_attempts => 3, on_lease_expiry => 'unknown',
                           exclude_fields => '{a,$.b.c}', drop_headers => '{}', error_statuses => '{"P0001": 402, "22": 400}',
                           allowed_role => 'regress_replacer', keep_history => false) $$;
SELECT test.migrate();
SELECT test.stored() AS before \gset
SELECT * FROM test.decisions();
-- Twice, and with another spelling of a span.
SELECT test.migrate();
SELECT idem_policy_set('replaced', ttl => '1 day', max_attempts => 3, on_lease_expiry => 'unknown',
                       exclude_fields => '{a,$.b.c}', drop_headers => '{}', error_statuses => '{"22": 400, "P0001": 402}',
                       allowed_role => 'regress_replacer', keep_history => false, reason => 'deployed');
SELECT idem_policy_alter('replaced', ttl => '1440 minutes');
SELECT test.stored() = :'before' AS same, decisions FROM test.decisions();

SELECT * FROM refused($$
SELECT idem_policy_set('replaced');
SELECT idem_policy_set('replaced', max_attempts => 3);
SELECT idem_policy_set('replaced', max_attempts => 4, exclude_fields => '{a}', wait => '1 s');
SELECT idem_policy_set('replaced', max_attempts => 4, replace => false);
SELECT idem_policy_set('replaced', max_attempts => 4, replace => NULL);
SELECT idem_policy_set('replaced', ttl => '1 day', max_attempts => 3, on_lease_expiry => 'unknown', exclude_fields => '{a,$.b.c}', drop_headers => '{}', error_statuses => '{"22": 400, "P0001": 402}', allowed_role => 'regress_replacer', keep_history => true);
SELECT idem_policy_set('replaced', ttl => '-1 day');
$$);
SELECT test.stored() = :'before' AS same, decisions FROM test.decisions();
SELECT idem_policy_set('replaced', max_attempts => 4, replace => true, reason => 'another team');
SELECT jsonb_strip_nulls(to_jsonb(p)) - 'since' - 'memory_before' AS policy FROM idempotency.policies p WHERE scope_pattern = 'replaced';
SELECT * FROM test.decisions();
-- What is dropped is there no more. Others are not meant.
SELECT idem_policy_drop('replaced', 'done');
SELECT idem_policy_set('replaced', ttl => '1 day'), idem_policy_set('replaced*', ttl => '2 days'), idem_policy_set('replaced/1', ttl => '3 days');
-- A right is asked for first: the answer says nothing of a closed scope.
SELECT idem_policy_alter('replaced', allowed_role => 'regress_replacer');
CREATE ROLE regress_stranger;
SELECT idem_grant('regress_stranger', administrator => true);
SET ROLE regress_stranger;
SELECT idem_policy_set('replaced', ttl => '1 day');
\echo :SQLSTATE
RESET ROLE;
SELECT idem_revoke('regress_stranger');
DROP ROLE regress_stranger, regress_replacer;
TRUNCATE idempotency.policy, idempotency.audit;
DROP FUNCTION test.decisions, test.migrate;
