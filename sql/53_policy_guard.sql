-- Promise: where the policy in force names a role, only members of that role and the owner change it:
-- not others by set, alter or drop, by a more specific pattern, or in a transaction that rolls back.
-- Encryption that no role guards can be ended by the owner only.
\a\pset footer off
-- sql/75_weaker_policies.sql is about warnings.
SET client_min_messages = error;

CREATE ROLE regress_operator;
CREATE ROLE regress_clerk;
CREATE ROLE regress_vault;
CREATE ROLE regress_teller IN ROLE regress_vault;
CREATE ROLE regress_keeper NOINHERIT IN ROLE regress_vault;
SELECT idem_grant('regress_operator', operator => true, administrator => true), idem_grant('regress_teller', operator => true, administrator => true),
       idem_grant('regress_keeper', operator => true, administrator => true);
GRANT USAGE ON SCHEMA test TO PUBLIC;

-- The result of a statement: nothing else is left of it.
CREATE FUNCTION test.tried(statement text, OUT came_of_it text) LANGUAGE plpgsql AS $$
DECLARE detail text;
BEGIN
    EXECUTE regexp_replace(statement, '\)$', ', reason => ''a test'')');
    RAISE SQLSTATE 'TT000';
EXCEPTION
    WHEN SQLSTATE 'TT000' THEN came_of_it := 'done';
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        came_of_it := concat_ws(' ', SQLSTATE, SQLERRM || ':', detail);
END $$;

SELECT idem_policy_set('vault', allowed_role => 'regress_vault', encrypt => false, ttl => '1 day');
SELECT idem_policy_set('safe*', allowed_role => 'regress_vault');
SELECT idem_policy_set('safe/open*', ttl => '2 days', reason => 'a test');
SELECT idem_policy_set('safe/open/shut', allowed_role => 'regress_clerk', reason => 'a test');
SELECT outcome FROM idem_begin('k', scope => 'vault');
SELECT idem_complete('k', 200, 'secret'::text, scope => 'vault', token => token) FROM idempotency.record WHERE key = 'k' AND scope = 'vault';

-- A transaction that would leave no trace.
SET ROLE regress_operator;
\set VERBOSITY default
BEGIN;
SELECT idem_policy_alter('vault', allowed_role => 'regress_operator');
SELECT status FROM idem_get('k', 'vault');
ROLLBACK;
-- Nor within a savepoint, a function, or a function of another's that has the caller's rights.
BEGIN;
SAVEPOINT s;
SELECT idem_policy_alter('vault', unset => '{allowed_role}');
ROLLBACK TO s;
SELECT status FROM idem_get('k', 'vault');
ROLLBACK;
\set VERBOSITY terse
DO $$ BEGIN PERFORM idem_policy_drop('vault'); PERFORM idem_get('k', 'vault'); END $$;

CREATE TEMPORARY TABLE tries (number serial, statement text);
INSERT INTO tries (statement) VALUES
    -- set over it, in full and with nothing, alter by whatever, and drop
    ($$SELECT idem_policy_set('vault', replace => true)$$),
    ($$SELECT idem_policy_set('vault', allowed_role => 'regress_vault', ttl => '1 day', replace => true)$$),
    ($$SELECT idem_policy_set('vault', allowed_role => 'regress_operator', replace => true)$$),
    ($$SELECT idem_policy_alter('vault', unset => '{allowed_role}')$$),
    ($$SELECT idem_policy_alter('vault', allowed_role => 'regress_operator')$$),
    ($$SELECT idem_policy_alter('vault', encrypt => false)$$),
    ($$SELECT idem_policy_alter('vault', ttl => '2 days')$$),
    ($$SELECT idem_policy_drop('vault')$$),
    -- more specific ones, within a prefix and within the scope of one
    ($$SELECT idem_policy_set('safe/1', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('safe/1*', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('safe', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('safe*', ttl => '1 day', replace => true)$$),
    ($$SELECT idem_policy_set('safe/open/shut', allowed_role => 'regress_vault', replace => true)$$),
    ($$SELECT idem_policy_drop('safe/open/shut')$$),
    -- less specific ones, whose scopes stay as they are, and those that are open
    ($$SELECT idem_policy_set('vaul*', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('*', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('safe/open/1', ttl => '1 day')$$),
    ($$SELECT idem_policy_drop('safe/open*')$$),
    ($$SELECT idem_policy_set('open', allowed_role => 'regress_vault')$$);
GRANT SELECT ON tries TO PUBLIC;
SELECT statement, test.tried(statement) FROM tries ORDER BY number;
-- A less specific one first, and then the drop.
BEGIN;
SELECT idem_policy_set('vaul*', ttl => '1 day');
SELECT idem_policy_drop('vault');
ROLLBACK;

-- A member may, also by way of another role; not a role that would have to SET ROLE first.
SET ROLE regress_teller;
SELECT statement, test.tried(statement) FROM tries ORDER BY number;
SET ROLE regress_keeper;
SELECT test.tried($$SELECT idem_policy_alter('vault', ttl => '2 days')$$);
SET ROLE regress_vault;
SELECT test.tried($$SELECT idem_policy_alter('vault', ttl => '2 days')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_policy_drop TO regress_vault;
SET ROLE regress_vault;
SELECT test.tried($$SELECT idem_policy_drop('vault')$$);
RESET ROLE;
REVOKE EXECUTE ON FUNCTION idem_policy_drop FROM regress_vault;
-- The owner may, and with the owner's rights a function may.
SELECT statement, test.tried(statement) FROM tries ORDER BY number;
CREATE FUNCTION test.as_owner(statement text) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT test.tried(statement)';
SET ROLE regress_operator;
SELECT test.as_owner($$SELECT idem_policy_drop('vault')$$);
RESET ROLE;

-- A missing role admits only the owner.
ALTER ROLE regress_clerk RENAME TO regress_scribe;
SET ROLE regress_teller;
SELECT test.tried($$SELECT idem_policy_drop('safe/open/shut')$$);
SELECT test.tried($$SELECT idem_policy_set('safe/open/shut', allowed_role => 'regress_teller')$$);
RESET ROLE;
SELECT test.tried($$SELECT idem_policy_drop('safe/open/shut')$$);
ALTER ROLE regress_scribe RENAME TO regress_clerk;

-- Policies written by hand are judged by the scopes that they match, each of them.
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_star_at_the_end;
INSERT INTO idempotency.policy (scope_pattern, allowed_role) VALUES ('hand*1', 'regress_vault'), ('hand*2', 'regress_clerk');
SET ROLE regress_teller;
SELECT test.tried($$SELECT idem_policy_set('hand/1', ttl => '1 day')$$);
SELECT test.tried($$SELECT idem_policy_set('hand*', ttl => '1 day')$$);
SELECT test.tried($$SELECT idem_policy_drop('hand*1')$$);
RESET ROLE;
DELETE FROM idempotency.policy WHERE scope_pattern LIKE 'hand*%';
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_star_at_the_end
    CHECK (scope_pattern OPERATOR(pg_catalog.!~~) '%*_%');

-- Encryption: an administrator may begin it and not end it; with a role, its members may.
SELECT idem_policy_set('sealed*', encrypt => true), idem_policy_set('sealed/role', encrypt => true, allowed_role => 'regress_vault');
TRUNCATE tries;
INSERT INTO tries (statement) VALUES
    ($$SELECT idem_policy_alter('sealed*', encrypt => false)$$),
    ($$SELECT idem_policy_alter('sealed*', unset => '{encrypt}')$$),
    ($$SELECT idem_policy_set('sealed*', replace => true)$$),
    ($$SELECT idem_policy_set('sealed/1', encrypt => false)$$),
    ($$SELECT idem_policy_set('sealed/1', ttl => '1 day')$$),
    ($$SELECT idem_policy_drop('sealed*')$$),
    -- A role of the operator's own would be in force for the next call.
    ($$SELECT idem_policy_alter('sealed*', allowed_role => 'regress_operator')$$),
    ($$SELECT idem_policy_set('sealed/1', encrypt => true, allowed_role => 'regress_operator')$$),
    ($$SELECT idem_policy_alter('sealed/role', encrypt => false)$$),
    ($$SELECT idem_policy_drop('sealed/role')$$),
    ($$SELECT idem_policy_alter('sealed*', ttl => '1 day')$$),
    ($$SELECT idem_policy_set('sealed*', encrypt => true)$$),
    ($$SELECT idem_policy_set('sealed/1', encrypt => true)$$),
    ($$SELECT idem_policy_alter('safe/open*', encrypt => true)$$);
SET ROLE regress_operator;
SELECT statement, test.tried(statement) FROM tries ORDER BY number;
\set VERBOSITY default
SELECT idem_policy_alter('sealed*', encrypt => false);
\set VERBOSITY terse
SET ROLE regress_teller;
SELECT statement, test.tried(statement) FROM tries ORDER BY number;
RESET ROLE;
SELECT statement, test.tried(statement) FROM tries ORDER BY number;

-- The owner of the table, who need not be a superuser.
CREATE ROLE regress_owner;
SELECT idem_grant('regress_owner', operator => true, administrator => true);
GRANT ALL ON SCHEMA idempotency TO regress_owner;
ALTER TABLE idempotency.policy OWNER TO regress_owner;
SET ROLE regress_owner;
SELECT test.tried($$SELECT idem_policy_drop('vault')$$);
RESET ROLE;
ALTER TABLE idempotency.policy OWNER TO CURRENT_USER;
REVOKE ALL ON SCHEMA idempotency FROM regress_owner;
SELECT idem_revoke('regress_owner');

SELECT idem_revoke('regress_operator'), idem_revoke('regress_teller'), idem_revoke('regress_keeper');
SELECT idem_forget('k', 'vault');
TRUNCATE idempotency.policy, idempotency.audit;
DROP TABLE tries;
DROP FUNCTION test.tried, test.as_owner;
REVOKE USAGE ON SCHEMA test FROM PUBLIC;
DROP ROLE regress_operator, regress_clerk, regress_teller, regress_keeper, regress_vault, regress_owner;
