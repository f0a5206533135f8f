-- Promise: each decision of an operator or the owner is stored with user, time and reason, in the
-- transaction that decides; only the owner can change written rows.
\a\pset footer off

CREATE ROLE regress_idem_support;
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_watcher IN ROLE pg_monitor;
CREATE ROLE regress_idem_writer IN ROLE pg_write_all_data, pg_read_all_data;
TRUNCATE idempotency.audit;
-- Columns that do not differ from run to run. (Rows of one transaction keep their order.)
CREATE VIEW test.decided AS
SELECT action, scope, principal, key, role, before, after, reason FROM idempotency.decisions ORDER BY decided_at;

-- Rights.
SELECT idem_grant('regress_idem_app', reason => 'service'), idem_grant('regress_idem_support', operator => true);
SELECT idem_grant('regress_idem_app', operator => true), idem_revoke('regress_idem_app', 'left us');
SELECT * FROM test.decided;

-- Policies: the values before and after.
TRUNCATE idempotency.audit;
SELECT idem_policy_set('audit-unknown', ttl => '1 day 2 hours', on_lease_expiry => 'unknown', reason => 'refunds');
SET IntervalStyle = iso_8601;
SELECT idem_policy_set('audit-unknown', on_lease_expiry => 'unknown', final_errors => '{22}', replace => true);
RESET IntervalStyle;
SELECT idem_policy_set('audit-gone*', allowed_role => 'regress_idem_support'), idem_policy_drop('audit-gone*', 'not needed'), idem_policy_drop('audit-gone*');
SELECT * FROM test.decided;

-- Records: each decision about one, by its operator.
TRUNCATE idempotency.audit;
SELECT outcome FROM unnest('{lives,unknown,failed,gone}'::text[]) k, idem_begin(k, '{"amount": 5}', 'audit-unknown', 'shop', holder => 'secret') c;
SELECT idem_fail('failed', 'secret', true, scope => 'audit-unknown', principal => 'shop', token => token)
  FROM idempotency.record WHERE (scope, key) = ('audit-unknown', 'failed');
UPDATE idempotency.record SET lease_until = now() WHERE scope = 'audit-unknown' AND key IN ('unknown', 'gone');
SET idempotency.log_keys = on;
SET SESSION AUTHORIZATION regress_idem_support;
SELECT idem_resolve('lives', 'release', 'audit-unknown', 'shop', error => 'secret', reason => 'the worker hangs', even_if_running => true);
SELECT idem_resolve('unknown', 'complete', 'audit-unknown', 'shop', 201, 'secret', reason => 'seen at the bank');
SELECT idem_resolve('failed', 'fail', 'audit-unknown', 'shop', error => 'secret');
SELECT idem_forget('gone', 'audit-unknown', 'shop', 'asked for'), idem_forget('gone', 'audit-unknown', 'shop', 'asked for');
RESET SESSION AUTHORIZATION;
SELECT * FROM test.decided;
SELECT DISTINCT decided_by, acting_as, key_digest, erased, application_name = current_setting('application_name') AS application,
       client_addr IS NOT DISTINCT FROM inet_client_addr() AS client, now() - decided_at < '1 hour' AS young, node
  FROM idempotency.decisions;
-- Nothing of requests, answers, errors and holders.
SELECT count(*) FROM idempotency.audit a WHERE a::text ~ 'secret|amount';
-- Without log_keys, a digest of the key instead. Who acts for whom is seen.
TRUNCATE idempotency.audit;
RESET idempotency.log_keys;
SET ROLE regress_idem_support;
SELECT idem_forget('lives', 'audit-unknown', 'shop');
RESET ROLE;
SELECT action, principal, key, key_digest = sha256('lives') AS digest, decided_by = session_user AS by_session, acting_as
  FROM idempotency.decisions;

-- A decision that is refused or rolled back leaves nothing.
TRUNCATE idempotency.audit;
\set VERBOSITY terse
SELECT statement, code, error FROM refused($$
SELECT idem_resolve('unknown', 'fail', 'audit-unknown', 'shop');
SELECT idem_resolve('absent', 'fail', 'audit-unknown', 'shop');
$$);
BEGIN;
SELECT idem_forget('unknown', 'audit-unknown', 'shop'), idem_policy_drop('audit-unknown', 'a test'), idem_revoke('regress_idem_support');
SELECT count(*) FROM idempotency.decisions;
SAVEPOINT s;
SELECT idem_grant('regress_idem_app');
ROLLBACK TO s;
SELECT count(*) FROM idempotency.decisions;
ROLLBACK;
SELECT count(*) FROM idempotency.decisions;
-- Nor is anything decided that can't be written down.
CREATE FUNCTION test.no_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER no_row BEFORE INSERT ON idempotency.audit FOR EACH ROW EXECUTE FUNCTION test.no_row();
SELECT statement, code, error FROM refused($$
SELECT idem_forget('unknown', 'audit-unknown', 'shop');
SELECT idem_grant('regress_idem_app');
$$);
DROP TRIGGER no_row ON idempotency.audit;
SELECT status, has_function_privilege('regress_idem_app', 'idem_get(text, text, text)', 'execute') AS granted
  FROM idem_get('unknown', 'audit-unknown', 'shop');
DROP FUNCTION test.no_row;
-- Reasons are one line.
\set VERBOSITY default
SELECT idem_forget('unknown', 'audit-unknown', 'shop', reason => E'two\nlines');
\echo :SQLSTATE
SELECT idem_policy_set('audit-unknown', reason => repeat('x', 1001));
\echo :SQLSTATE
SELECT idem_forget('unknown', 'audit-unknown', 'shop', reason => repeat('ä', 1000));
SELECT length(reason) FROM idempotency.decisions;

-- Only the owner writes: not deciding or monitoring roles, and by no function.
\set VERBOSITY sqlstate
SET SESSION AUTHORIZATION regress_idem_support;
SELECT * FROM idempotency.audit;
SELECT * FROM idempotency.decisions;
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as) VALUES (now(), 'forget', 'me', 'me');
UPDATE idempotency.audit SET decided_by = 'somebody';
DELETE FROM idempotency.audit;
TRUNCATE idempotency.audit;
SET idempotency.audit_retention = 1;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_watcher;
SELECT action, scope FROM idempotency.decisions;
SELECT action, scope FROM idempotency.decisions_here;
UPDATE idempotency.decisions_here SET decided_by = 'somebody';
SELECT * FROM idempotency.audit;
RESET SESSION AUTHORIZATION;
SELECT grantee, privilege_type FROM information_schema.role_table_grants
 WHERE (table_schema, table_name) = ('idempotency', 'audit') AND grantee <> session_user ORDER BY 1, 2;
-- Not who may write every table, whatever the statement, the view and the session's role in replication;
-- nor who was given the table by mistake.
\set VERBOSITY default
SELECT count(*) AS decisions FROM idempotency.audit \gset
GRANT TRUNCATE ON idempotency.audit TO regress_idem_writer;
SET session_replication_role = replica;
SET SESSION AUTHORIZATION regress_idem_writer;
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as) VALUES (now(), 'forget', 'me', 'me');
\echo :SQLSTATE
\set VERBOSITY sqlstate
COPY idempotency.audit (decided_at, action, decided_by, acting_as) FROM stdin;
2000-01-01	forget	me	me
\.
INSERT INTO idempotency.decisions_here (decided_at, action, decided_by, acting_as) VALUES (now(), 'forget', 'me', 'me');
UPDATE idempotency.audit SET decided_by = 'somebody';
UPDATE idempotency.decisions_here SET decided_by = 'somebody';
DELETE FROM idempotency.audit;
DELETE FROM idempotency.decisions_here;
WITH gone AS (DELETE FROM idempotency.audit RETURNING *) SELECT count(*) FROM gone;
TRUNCATE idempotency.audit;
SELECT idempotency.owner_writes();
RESET SESSION AUTHORIZATION;
RESET session_replication_role;
REVOKE TRUNCATE ON idempotency.audit FROM regress_idem_writer;
SELECT count(*) - :decisions AS more FROM idempotency.audit;
-- A role that may act as the owner counts as the owner.
SELECT relowner::regrole AS owner FROM pg_class WHERE oid = 'idempotency.audit'::regclass \gset
CREATE ROLE regress_idem_auditor;
GRANT USAGE, CREATE ON SCHEMA idempotency TO regress_idem_auditor;
ALTER TABLE idempotency.audit OWNER TO regress_idem_auditor;
GRANT regress_idem_auditor TO regress_idem_watcher;
SELECT idem_grant('regress_idem_app');
SET SESSION AUTHORIZATION regress_idem_watcher;
UPDATE idempotency.audit SET reason = 'the owner' WHERE role = 'regress_idem_app';
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM idempotency.decisions WHERE reason = 'the owner';
REVOKE regress_idem_auditor FROM regress_idem_watcher;
ALTER TABLE idempotency.audit OWNER TO :owner;
REVOKE ALL ON SCHEMA idempotency FROM regress_idem_auditor;
SELECT idem_revoke('regress_idem_app');
DELETE FROM idempotency.audit WHERE role = 'regress_idem_app';
\set VERBOSITY default

-- A row stays for idempotency.audit_retention, and then goes as records do.
SELECT reset_val, context FROM pg_settings WHERE name = 'idempotency.audit_retention';
SELECT idem_cleanup(NULL) >= 0 AS nothing_else_is_left;
TRUNCATE idempotency.audit;
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as)
SELECT now() - n * interval '1 day', 'forget', n, '' FROM unnest('{364,366,400,500}'::integer[]) n;
SELECT idem_cleanup(2);
SELECT decided_by FROM idempotency.decisions ORDER BY 1;
-- Also where every table is published, with the sweeper's journal.
SET client_min_messages = error;
CREATE PUBLICATION regress_idem_all FOR ALL TABLES;
RESET client_min_messages;
SELECT idem_cleanup(), idem_cleanup();
SELECT decided_by FROM idempotency.decisions;
UPDATE idempotency.audit SET principal = 'p';
SELECT idem_erase_decisions('p');
BEGIN;
UPDATE idempotency.journal SET total_rows = 0;
ROLLBACK;
DROP PUBLICATION regress_idem_all;
-- By an index, so that a sweep of a large table reads only the rows it removes.
SELECT indexdef FROM pg_indexes WHERE (schemaname, tablename) = ('idempotency', 'audit') ORDER BY indexname;
-- Likewise decisions about a key, with or without its name; and the latest decisions.
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM idempotency.decisions_here
 WHERE scope = 's' AND principal = 'p' AND (key = 'k' OR key_digest = '\x00');
EXPLAIN (COSTS OFF) SELECT * FROM idempotency.decisions_here ORDER BY decided_at DESC LIMIT 200;
RESET enable_seqscan;

DROP VIEW test.decided;
SELECT idem_policy_drop('audit-unknown', 'a test'), idem_revoke('regress_idem_support');
TRUNCATE idempotency.audit;
DROP ROLE regress_idem_support, regress_idem_app, regress_idem_watcher, regress_idem_writer, regress_idem_auditor;
