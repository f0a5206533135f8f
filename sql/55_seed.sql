-- Promise: sessions that see locks can't find keys that share one. Locks are made with a secret that only
-- the owner reads or writes, and without it no key is served.
\a\pset footer off
\set VERBOSITY terse

-- Three keys that PostgreSQL's own hash takes for one.
CREATE VIEW test.colliding AS SELECT unnest('{victim order,_+3y7WW0=tlf,i0yd84+2D%3l}'::text[]) AS key;
SELECT count(DISTINCT hashtextextended(key, hashtextextended('', hashtextextended('collide', 0)))) AS hashes FROM test.colliding;
BEGIN;
SELECT key, (idem_begin(key, scope => 'collide')).outcome FROM test.colliding;
CREATE TEMPORARY TABLE locks AS
    SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid();
SELECT count(DISTINCT (classid, objid)) AS locks FROM locks;
SELECT key, idem_release(key, 'collide') FROM test.colliding;
COMMIT;

-- One row of sixteen random bytes, for the owner only.
SELECT count(*), min(length(value)) AS bytes, count(DISTINCT get_byte(value, i)) > 4 AS random
  FROM idempotency.seed, generate_series(0, 15) i;
CREATE ROLE regress_curious IN ROLE pg_monitor;
CREATE ROLE regress_writer IN ROLE pg_write_all_data;
GRANT USAGE ON SCHEMA idempotency TO regress_writer;
SELECT idem_grant('regress_curious', operator => true);
SET ROLE regress_curious;
SELECT statement, code, error FROM refused($$
SELECT * FROM idempotency.seed;
SELECT idempotency.seed_coming();
$$);
SET ROLE regress_writer;
SELECT statement, code, error FROM refused($$
INSERT INTO idempotency.seed (value) VALUES ('0123456789abcdef');
UPDATE idempotency.seed SET value = '0123456789abcdef';
$$);
SET session_replication_role = replica;
\echo :SQLSTATE
RESET ROLE;
SET session_replication_role = replica;
SET ROLE regress_writer;
INSERT INTO idempotency.seed (value) VALUES ('0123456789abcdef');
\echo :SQLSTATE
RESET ROLE;
RESET session_replication_role;
SELECT idem_revoke('regress_curious');
REVOKE USAGE ON SCHEMA idempotency FROM regress_writer;
DROP ROLE regress_curious, regress_writer;

-- Another row replaces it, as in a restore; held locks stay held.
CREATE TEMPORARY TABLE before AS SELECT * FROM idempotency.seed;
BEGIN;
SELECT outcome FROM idem_begin('held', scope => 'collide');
INSERT INTO idempotency.seed (value) VALUES ('0123456789abcdef');
SELECT convert_from(value, 'UTF8') FROM idempotency.seed;
SELECT idem_complete('held', 200, 'done'::text, scope => 'collide');
COMMIT;
CREATE FUNCTION test.lock_of(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE lock text;
BEGIN
    PERFORM idem_begin(key, scope => 'collide');
    SELECT classid || '.' || objid INTO lock FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid();
    PERFORM idem_release(key, 'collide');
    RETURN lock;
END $$;
-- The locks are those of the seed of now: SipHash-2-4, keyed with 0123456789abcdef.
SELECT test.lock_of('victim order') AS lock;
SELECT outcome FROM idem_begin('held', scope => 'collide');
-- Where triggers did not fire, the oldest counts, which is that of the dump.
BEGIN;
ALTER TABLE idempotency.seed DISABLE TRIGGER ALL;
INSERT INTO idempotency.seed (value, made_at) VALUES ('fedcba9876543210', '2020-01-01');
ALTER TABLE idempotency.seed ENABLE TRIGGER ALL;
COMMIT;
SELECT test.lock_of('victim order') AS lock;

-- Without it nothing is served, and with it everything again.
DELETE FROM idempotency.seed;
\set VERBOSITY default
SELECT outcome FROM idem_begin('held', scope => 'collide');
\set VERBOSITY terse
SELECT idem_once('another', 'collide');
SELECT status FROM idem_get('held', 'collide');
SELECT idem_complete('held', scope => 'collide', token => 1);
SELECT idem_forget('held', 'collide');
INSERT INTO idempotency.seed (value) VALUES ('too short');
INSERT INTO idempotency.seed SELECT * FROM before;
SELECT outcome FROM idem_begin('held', scope => 'collide');
TRUNCATE idempotency.seed;
SELECT outcome FROM idem_begin('held', scope => 'collide');
INSERT INTO idempotency.seed SELECT * FROM before;
SELECT outcome FROM idem_begin('held', scope => 'collide');
SELECT count(*) AS rows, bool_and(b = s) AS same FROM before b, idempotency.seed s;

ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER owner_writes, ENABLE ALWAYS TRIGGER owner_truncates,
    ENABLE ALWAYS TRIGGER seed_coming, ENABLE ALWAYS TRIGGER seed_changed, ENABLE ALWAYS TRIGGER seed_truncated;
DROP VIEW test.colliding;
DROP FUNCTION test.lock_of;
TRUNCATE idempotency.record, idempotency.audit;
