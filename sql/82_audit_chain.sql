-- Promise: the audit is a chain of digests. idem_audit_verify finds each row that was changed, removed or
-- inserted past the functions; erasing a principal and removal by age keep the chain valid.
\a\pset footer off

CREATE ROLE regress_idem_support;
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_watcher IN ROLE pg_monitor;
SELECT idem_grant('regress_idem_support', operator => true), idem_grant('regress_idem_app');
TRUNCATE idempotency.audit, idempotency.audit_chain;
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
CREATE TEMP VIEW faults AS SELECT number, rows, problem, decided_at IS NOT NULL AS dated, detail FROM idem_audit_verify();
-- A decision of its own transaction each, with a name or without.
SELECT count(*) FROM unnest('{a,b,c,d,e}'::text[]) k, idem_begin(k, scope => 'chain', principal => 'p' || k, lease => '1 hour');
SELECT idem_resolve('a', 'fail', 'chain', 'pa', reason => 'one');
SET idempotency.log_keys = on;
SELECT idem_resolve('b', 'fail', 'chain', 'pb', reason => 'two');
RESET idempotency.log_keys;
SELECT idem_resolve('c', 'fail', 'chain', 'pc', reason => 'three, ä "quoted" {NULL,\}');
-- Rows are linked in the order of their time, when they are committed.
SELECT count(*) AS unlinked FROM idempotency.decisions WHERE number IS NULL;
SELECT * FROM faults;
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT number, reason, octet_length(link) AS bytes FROM idempotency.decisions ORDER BY number;
SELECT number, length(link) AS bytes, anchor_number, logged FROM idempotency.audit_chain;
SELECT * FROM faults;
-- The next call logs the newest link: its transaction has committed then.
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT number, logged FROM idempotency.audit_chain;
SELECT number || ':' || encode(link, 'hex') AS line FROM idempotency.audit_chain \gset
-- Without work, no call writes.
BEGIN;
SELECT linked FROM idempotency.link_decisions(100, true);
SELECT idempotency.remove_old_decisions(now() - interval '1 year', 100) AS removed, pg_current_xact_id_if_assigned() AS xid;
COMMIT;
BEGIN;
SELECT idem_resolve('d', 'fail', 'chain', 'pd', reason => 'four');
SELECT idem_cleanup() >= 0 AS cleaned, idem_cleanup() >= 0 AS cleaned_again;
SELECT number, logged FROM idempotency.audit_chain;
SELECT * FROM faults;
COMMIT;
-- With log_audit off, nothing counts as logged.
SET idempotency.log_audit = off;
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT number, logged FROM idempotency.audit_chain;
RESET idempotency.log_audit;
-- Its documented formula, without our functions.
SELECT a.number,
       a.names_digest = sha256(a.salt || sha256(convert_to(ARRAY[a.principal, a.key, encode(a.key_digest, 'hex')]::text, 'UTF8'))) AS names,
       a.link = sha256(lag(a.link, 1, '') OVER (ORDER BY a.number) || int8send(a.number) || sha256(convert_to(ARRAY[
           encode(timestamptz_send(a.decided_at), 'hex'), a.action, a.scope, encode(a.names_digest, 'hex'), a.role, a.before::text,
           a.after::text, a.reason, a.decided_by, a.acting_as, a.application_name, a.client_addr::text]::text, 'UTF8'))) AS row
  FROM idempotency.audit a ORDER BY a.number;
-- It does not depend on settings of the session.
SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = iso_8601; SET bytea_output = escape; SET extra_float_digits = 0;
SELECT * FROM faults;
RESET ALL;

-- What was done past the functions. Each is undone.
CREATE FUNCTION pg_temp.seen_after(statement text) RETURNS SETOF faults LANGUAGE plpgsql AS $$
DECLARE
    found faults[];
BEGIN
    BEGIN
        EXECUTE statement;
        found := ARRAY(SELECT f FROM faults f);
        RAISE EXCEPTION USING ERRCODE = 'ZZ999';
    EXCEPTION WHEN SQLSTATE 'ZZ999' THEN
        RETURN QUERY SELECT * FROM unnest(found);
    END;
END $$;
SELECT split_part(s, '|', 1) AS what, f.* FROM unnest(ARRAY[
    'the reason|UPDATE idempotency.audit SET reason = ''another'' WHERE number = 2',
    'the user|UPDATE idempotency.audit SET decided_by = ''another'' WHERE number = 2',
    'the time|UPDATE idempotency.audit SET decided_at = decided_at + ''1 us'' WHERE number = 1',
    'the principal|UPDATE idempotency.audit SET principal = ''another'' WHERE number = 2',
    'the key|UPDATE idempotency.audit SET key = ''another'' WHERE number = 2',
    'the digest of the key|UPDATE idempotency.audit SET key_digest = sha256(''x'') WHERE number = 1',
    'a name of an erased row|UPDATE idempotency.audit SET erased = true, salt = NULL WHERE number = 2',
    'the salt|UPDATE idempotency.audit SET salt = NULL WHERE number = 2',
    'null for empty|UPDATE idempotency.audit SET application_name = nullif(application_name, ''''), role = '''' WHERE number = 2',
    'a row and its link|UPDATE idempotency.audit SET reason = ''x'', link = sha256(''x'') WHERE number = 2',
    'the last link|UPDATE idempotency.audit SET link = sha256(''x'') WHERE number = 4',
    'the first row|DELETE FROM idempotency.audit WHERE number = 1',
    'rows in the middle|DELETE FROM idempotency.audit WHERE number IN (2, 3)',
    'the last row|DELETE FROM idempotency.audit WHERE number = 4',
    'all rows|DELETE FROM idempotency.audit',
    'the state|DELETE FROM idempotency.audit_chain',
    'the state of before|UPDATE idempotency.audit_chain SET number = 3, link = (SELECT link FROM idempotency.audit WHERE number = 3)',
    'a copy|INSERT INTO idempotency.audit SELECT * FROM idempotency.audit WHERE number = 3',
    'a row at the end|INSERT INTO idempotency.audit SELECT (jsonb_populate_record(a, ''{"number": 5}'')).* FROM idempotency.audit a WHERE number = 4',
    'a row before the anchor|INSERT INTO idempotency.audit SELECT (jsonb_populate_record(a, ''{"number": 0}'')).* FROM idempotency.audit a WHERE number = 4'
    ]) WITH ORDINALITY u (s, n), pg_temp.seen_after(split_part(s, '|', 2)) f ORDER BY n, f.number, f.problem;
SELECT * FROM faults;

-- A superuser can remove the last rows and make the chain anew. The link in the log tells.
SELECT * FROM idem_audit_verify(:'line');
BEGIN;
DELETE FROM idempotency.audit WHERE number >= 3;
UPDATE idempotency.audit_chain SET number = 2, link = (SELECT link FROM idempotency.audit WHERE number = 2);
SELECT * FROM faults;
SELECT number, rows, problem, detail FROM idem_audit_verify(:'line');
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as) VALUES (now(), 'forget', 'me', 'me'), (now(), 'forget', 'me', 'me');
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT * FROM faults;
SELECT number, rows, problem, detail FROM idem_audit_verify(:'line');
ROLLBACK;
BEGIN;
UPDATE idempotency.audit SET number = NULL, reason = 'nothing';
UPDATE idempotency.audit_chain SET number = 0, link = '';
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT * FROM faults;
SELECT number, rows, problem, detail FROM idem_audit_verify(:'line');
ROLLBACK;
SELECT * FROM idem_audit_verify(:'line');

-- Erasing keeps the chain, with no name and no salt.
CALL idem_forget_principal('pb', 'asked for');
SELECT * FROM faults;
SELECT number, principal, key, key_digest, salt, names_digest IS NOT NULL AS digest, erased FROM idempotency.audit WHERE number = 2;
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT * FROM faults;
-- A row that was erased before it was linked.
SELECT idem_resolve('e', 'fail', 'chain', 'pe', reason => 'five');
CALL idem_forget_principal('pe', 'asked for');
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT count(*), count(salt), count(names_digest) FROM idempotency.audit WHERE erased;
SELECT * FROM faults;

-- Age removes rows in the order of their links, and leaves an anchor.
TRUNCATE idempotency.audit, idempotency.audit_chain;
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as)
SELECT now() - n * interval '1 day', 'forget', n, '' FROM unnest('{1,364,366,400,500}'::integer[]) n;
SELECT idem_cleanup(2);
SELECT anchor_number, number FROM idempotency.audit_chain;
SELECT number, decided_by FROM idempotency.decisions ORDER BY 1;
SELECT * FROM faults;
SELECT idem_cleanup();
SELECT anchor_number, number FROM idempotency.audit_chain;
SELECT * FROM faults;
SELECT anchor_number || ':' || encode(anchor_link, 'hex') AS anchor FROM idempotency.audit_chain \gset
SELECT * FROM idem_audit_verify(:'anchor');
SELECT number, rows, problem, detail FROM idem_audit_verify('1:' || repeat('0', 64));
SELECT number, rows, problem, detail FROM idem_audit_verify('3:' || repeat('0', 64));
-- A late commit is linked behind younger decisions, and goes with them.
INSERT INTO idempotency.audit (decided_at, action, decided_by, acting_as) VALUES (now() - interval '2 years', 'forget', 'late', '');
SELECT idem_cleanup();
SELECT number, decided_by FROM idempotency.decisions ORDER BY 1;
UPDATE idempotency.audit SET number = NULL;
DELETE FROM idempotency.audit;
SELECT * FROM faults;

-- Operators and members of pg_monitor may ask. Only the owner writes.
SELECT statement, code, error, detail, hint FROM refused($$
SELECT idem_audit_verify('');
SELECT idem_audit_verify('1:abc');
SELECT idem_audit_verify('x' || repeat('0', 65));
$$);
\set VERBOSITY sqlstate
SET SESSION AUTHORIZATION regress_idem_support;
SELECT count(*) > 0 AS found FROM idem_audit_verify();
UPDATE idempotency.audit_chain SET number = 0;
SELECT idempotency.link_decisions(1, false);
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_watcher;
SELECT count(*) > 0 AS found FROM idem_audit_verify();
SELECT * FROM idempotency.audit_chain;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_idem_app;
SELECT * FROM idem_audit_verify();
RESET SESSION AUTHORIZATION;
GRANT ALL ON idempotency.audit_chain TO regress_idem_app;
GRANT USAGE ON SCHEMA idempotency TO regress_idem_app;
SET SESSION AUTHORIZATION regress_idem_app;
UPDATE idempotency.audit_chain SET number = 0;
TRUNCATE idempotency.audit_chain;
RESET SESSION AUTHORIZATION;
REVOKE ALL ON idempotency.audit_chain FROM regress_idem_app;
REVOKE USAGE ON SCHEMA idempotency FROM regress_idem_app;
\set VERBOSITY default

DROP FUNCTION pg_temp.seen_after;
DROP VIEW faults;
SELECT idem_revoke('regress_idem_support'), idem_revoke('regress_idem_app');
DELETE FROM idempotency.record WHERE scope = 'chain';
TRUNCATE idempotency.audit, idempotency.audit_chain;
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
DROP ROLE regress_idem_support, regress_idem_app, regress_idem_watcher;
