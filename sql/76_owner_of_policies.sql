-- Promise: only their owner writes the tables of policies and grants. A role that may write all tables opens
-- no scope, also as an administrator, in the replica role, or with an own view.
\a\pset footer off
\set VERBOSITY terse

CREATE ROLE regress_writer IN ROLE pg_write_all_data, pg_read_all_data;
CREATE ROLE regress_closed;
GRANT USAGE ON SCHEMA idempotency TO regress_writer;
GRANT ALL ON idempotency.policy, idempotency.granted TO regress_writer;
SELECT idem_grant('regress_writer', true, administrator => true);
SELECT idem_policy_set('closed', allowed_role => 'regress_closed', ttl => '1 day');
SELECT to_jsonb(p) AS before FROM idempotency.policies p \gset

-- In the replica role, too.
SET session_replication_role = replica;
SET ROLE regress_writer;
DELETE FROM idempotency.policy;
UPDATE idempotency.policy SET allowed_role = NULL;
RESET ROLE;
RESET session_replication_role;
SET ROLE regress_writer;
SELECT * FROM refused($$
DELETE FROM idempotency.policy;
UPDATE idempotency.policy SET allowed_role = NULL;
UPDATE idempotency.policy SET scope_pattern = 'other';
INSERT INTO idempotency.policy (scope_pattern) VALUES ('closed/open');
INSERT INTO idempotency.policy (scope_pattern) VALUES ('closed') ON CONFLICT (scope_pattern) DO UPDATE SET allowed_role = NULL;
MERGE INTO idempotency.policy p USING (VALUES (1)) v ON true WHEN MATCHED THEN DELETE;
WITH gone AS (DELETE FROM idempotency.policy RETURNING *) SELECT count(*) FROM gone;
TRUNCATE idempotency.policy;
ALTER TABLE idempotency.policy DISABLE TRIGGER owner_writes;
INSERT INTO idempotency.granted VALUES ('regress_writer', true, true, true);
TRUNCATE idempotency.granted;
$$);
COPY idempotency.policy (scope_pattern) FROM stdin;
closed/open
\.
CREATE TEMPORARY VIEW mine AS SELECT * FROM idempotency.policy;
DELETE FROM mine;
SELECT outcome FROM idem_begin('k', scope => 'closed');
\echo :SQLSTATE
SELECT to_jsonb(p) = :'before' AS same FROM idempotency.policies p;
-- The functions still write, as their owner.
SELECT idem_policy_set('open', ttl => '1 day'), idem_policy_alter('open', ttl => '2 days'), idem_policy_drop('open');
RESET ROLE;

-- The owner writes, as a restore does; and each role with the owner's rights.
UPDATE idempotency.policy SET ttl = '3 days' WHERE scope_pattern = 'closed';
INSERT INTO idempotency.granted VALUES ('regress_nobody', false, false, false);
DELETE FROM idempotency.granted;
TRUNCATE idempotency.policy, idempotency.granted;
DROP VIEW mine;

SELECT idem_revoke('regress_writer');
REVOKE ALL ON SCHEMA idempotency FROM regress_writer;
REVOKE ALL ON idempotency.policy, idempotency.granted FROM regress_writer;
DROP ROLE regress_writer, regress_closed;

TRUNCATE idempotency.audit;
