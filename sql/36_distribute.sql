-- idem_distribute without a cluster. test/scale/ tests it in one.
\set VERBOSITY default
SELECT idem_distribute();
SELECT idem_distribute('idempotency.record');

-- An old Citus, as its catalog shows it.
BEGIN;
SET LOCAL allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (1, 'citus', 10, 'pg_catalog'::regnamespace, false, '12.1-1');
SELECT idem_distribute();
ROLLBACK;

-- It needs a right.
CREATE ROLE regress_distributor;
SET ROLE regress_distributor;
SELECT idem_distribute();
RESET ROLE;
DROP ROLE regress_distributor;
BEGIN READ ONLY;
SELECT idem_distribute();
ROLLBACK;

-- All goes on as before.
SELECT outcome FROM idem_begin('not distributed', principal => 'tenant');
SELECT count(*), count(node) AS named FROM idempotency.stores;
