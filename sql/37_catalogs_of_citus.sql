-- Promise: Citus's catalogs of shards are read correctly, and an unknown form of them is refused with a
-- clear error. Without Citus: catalogs of the same form that declare two tables here as shards of this
-- node. test/scale/ has the real ones, where the server has Citus.
\a\pset footer off
\set main :DBNAME
CREATE DATABASE catalogs_of_citus;
\c catalogs_of_citus
CREATE EXTENSION idempotency;
CREATE SCHEMA test;

CREATE TABLE idempotency.record_101 (LIKE idempotency.record INCLUDING ALL);
CREATE TABLE idempotency.record_102 (LIKE idempotency.record INCLUDING ALL);
-- How the server writes down which column it is.
CREATE TABLE test.by_principal (LIKE idempotency.record, by text GENERATED ALWAYS AS (principal) STORED);
CREATE TABLE test.by_scope (LIKE idempotency.record, by text GENERATED ALWAYS AS (scope) STORED);
CREATE VIEW test.column AS SELECT adrelid::regclass, adbin::text FROM pg_attrdef WHERE adrelid::regclass::text LIKE 'test.by%';
-- A principal of each half of the hashes.
SELECT min(i::text) FILTER (WHERE hashtext(i::text) < 0) AS low, min(i::text) FILTER (WHERE hashtext(i::text) >= 0) AS high
  FROM generate_series(1, 100) i \gset

-- Tables of these names in any other schema say nothing.
CREATE TABLE public.pg_dist_partition AS SELECT 'idempotency.record'::regclass AS logicalrelid, 'h'::"char" AS partmethod;
CREATE TABLE idempotency.pg_dist_partition AS SELECT * FROM public.pg_dist_partition;
SET search_path = public, pg_catalog;
SELECT shard, "table" FROM idempotency.tables_here();
RESET search_path;

SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char" NOT NULL,
    partkey text, colocationid integer NOT NULL, repmodel "char" NOT NULL, autoconverted boolean NOT NULL);
CREATE UNIQUE INDEX pg_dist_partition_logical_relid_index ON pg_catalog.pg_dist_partition (logicalrelid);
CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass NOT NULL, shardid bigint NOT NULL,
    shardstorage "char" NOT NULL, shardalias text, shardminvalue text, shardmaxvalue text);
ALTER TABLE pg_catalog.pg_dist_shard DROP COLUMN shardalias;
CREATE INDEX pg_dist_shard_logical_relid_index ON pg_catalog.pg_dist_shard (logicalrelid);
CREATE TABLE pg_catalog.pg_dist_placement (placementid bigint NOT NULL, shardid bigint NOT NULL,
    shardstate integer NOT NULL, shardlength bigint NOT NULL, groupid integer NOT NULL);
CREATE INDEX pg_dist_placement_shardid_index ON pg_catalog.pg_dist_placement (shardid);
CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer NOT NULL);
-- By which Citus keeps a shard in its place, and tells of its transaction. There is neither here.
CREATE FUNCTION pg_catalog.lock_shard_metadata(integer, bigint[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION pg_catalog.get_current_transaction_id(OUT database_id oid, OUT process_id integer,
    OUT initiator_node_identifier integer, OUT transaction_number bigint, OUT transaction_stamp timestamptz)
    LANGUAGE sql AS $$ SELECT oid, pg_backend_pid(), 0, 0::bigint, NULL::timestamptz FROM pg_database WHERE datname = current_database() $$;

INSERT INTO pg_dist_local_group VALUES (7);
INSERT INTO pg_dist_partition SELECT 'idempotency.record', 'h', adbin, 1, 's', false FROM test.column WHERE adrelid = 'test.by_principal'::regclass;
INSERT INTO pg_dist_shard VALUES ('idempotency.record', 102, 't', '0', '2147483647'), ('idempotency.record', 101, 't', '-2147483648', '-1');
INSERT INTO pg_dist_placement VALUES (1, 101, 1, 0, 7), (2, 102, 1, 0, 7);

-- Nor do catalogs without the extension.
SELECT shard, "table" FROM idempotency.tables_here();

INSERT INTO pg_extension SELECT 1, 'citus', 10, 'pg_catalog'::regnamespace, false, '14.0-1', NULL, NULL;
-- Citus's own reaction when rows of its catalogs change.
CREATE PROCEDURE test.tell() LANGUAGE sql AS $$ ALTER TABLE idempotency.record RESET (parallel_workers) $$;
CALL test.tell();
SELECT shard, "table" FROM idempotency.tables_here() ORDER BY shard;

-- A record lies in the shard of its principal, be it written by the call or at COMMIT. (SQL writes to the
-- distributed table, and Citus, which is not here, to its shards.)
SELECT outcome FROM idem_begin('leased', principal => :'low', lease => '1h');
BEGIN;
SELECT outcome FROM idem_begin('in one', principal => :'low');
SELECT outcome FROM idem_begin('in one', principal => :'high');
SELECT idem_complete('in one', 200, 'low', principal => :'low');
SELECT idem_complete('in one', 200, 'high', principal => :'high');
COMMIT;
SELECT principal = :'low' AS low, key, status,
       place = CASE WHEN current_setting('idempotency.store') = 'sql' THEN 'idempotency.record'::regclass
                    WHEN principal = :'low' THEN 'idempotency.record_101' ELSE 'idempotency.record_102' END AS there
  FROM (SELECT tableoid AS place, * FROM idempotency.record
        UNION ALL SELECT tableoid, * FROM idempotency.record_101
        UNION ALL SELECT tableoid, * FROM idempotency.record_102) AS r ORDER BY low DESC, key;
SELECT outcome, convert_from(body, 'UTF8') FROM idem_begin('in one', principal => :'high');

-- How it looks after a change of the catalogs, which is taken back.
CREATE FUNCTION test.after(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; detail text;
BEGIN
    EXECUTE change;
    CALL test.tell();
    SELECT string_agg(coalesce(shard::text, 'no shard'), ', ' ORDER BY shard) INTO message FROM idempotency.tables_here();
    RAISE EXCEPTION '%', coalesce(message, 'nothing here');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(': ', message, NULLIF(detail, ''));
END $$;

SELECT change, test.after(change) FROM unnest(ARRAY[
-- Columns in another order, more of them, and no index: known by name.
'ALTER TABLE pg_dist_placement DROP COLUMN groupid; ALTER TABLE pg_dist_placement ADD groupid integer DEFAULT 7',
'ALTER TABLE pg_dist_local_group ADD more text',
'DROP INDEX pg_dist_placement_shardid_index, pg_dist_shard_logical_relid_index, pg_dist_partition_logical_relid_index',
'ALTER INDEX pg_dist_placement_shardid_index RENAME TO other; CREATE INDEX pg_dist_placement_shardid_index ON pg_dist_shard (shardid)',
-- Missing objects, and objects of another type, are errors.
'DROP TABLE pg_dist_partition',
'DROP TABLE pg_dist_shard',
'DROP TABLE pg_dist_placement',
'DROP TABLE pg_dist_local_group',
'ALTER TABLE pg_dist_placement RENAME TO other; CREATE VIEW pg_catalog.pg_dist_placement AS SELECT * FROM other',
'ALTER TABLE pg_dist_partition RENAME partkey TO other',
'ALTER TABLE pg_dist_partition DROP COLUMN repmodel',
'ALTER TABLE pg_dist_partition ALTER partmethod TYPE text',
'ALTER TABLE pg_dist_partition ALTER logicalrelid TYPE oid',
'ALTER TABLE pg_dist_shard ALTER shardid TYPE text',
'ALTER TABLE pg_dist_shard ALTER shardminvalue TYPE integer USING shardminvalue::integer',
'ALTER TABLE pg_dist_placement ALTER shardid TYPE numeric',
'ALTER TABLE pg_dist_placement ALTER shardstate TYPE bigint',
'ALTER TABLE pg_dist_local_group ALTER groupid TYPE text',
'ALTER TABLE pg_dist_local_group ALTER groupid DROP NOT NULL; UPDATE pg_dist_local_group SET groupid = NULL',
'UPDATE pg_dist_shard SET shardmaxvalue = NULL',
-- Nor is a value.
'UPDATE pg_dist_shard SET shardmaxvalue = ''all''',
'UPDATE pg_dist_partition SET partkey = ''{NOBODYKNOWS :this node}''',
-- Distributed otherwise: served through Citus, and by the whole table.
'UPDATE pg_dist_partition SET partkey = adbin FROM test.column WHERE adrelid = ''test.by_scope''::regclass',
'UPDATE pg_dist_partition SET partkey = ''<>''',
'UPDATE pg_dist_partition SET partkey = NULL, partmethod = ''n'', repmodel = ''t''',
'UPDATE pg_dist_partition SET partmethod = ''r''',
'UPDATE pg_dist_partition SET repmodel = ''c''',
-- The shards of this node.
'UPDATE pg_dist_placement SET groupid = 8 WHERE shardid = 101',
'UPDATE pg_dist_placement SET groupid = 8',
'UPDATE pg_dist_placement SET shardstate = 3 WHERE shardid = 102',
'INSERT INTO pg_dist_placement VALUES (3, 102, 4, 0, 7), (4, 102, 1, 0, 8)',
'DELETE FROM pg_dist_placement WHERE shardid = 102',
'DROP TABLE idempotency.record_102',
'DELETE FROM pg_dist_local_group',
'DELETE FROM pg_dist_local_group; UPDATE pg_dist_placement SET groupid = 0',
'DELETE FROM pg_dist_shard',
-- Citus has taken its metadata away, so the node of the records is unknown.
'DELETE FROM pg_dist_partition',
'DELETE FROM pg_dist_partition; DROP TABLE idempotency.record_101',
'DELETE FROM pg_dist_partition; DROP TABLE idempotency.record_101, idempotency.record_102;
 CREATE TABLE idempotency.record_ (); CREATE TABLE idempotency.record_1st (); CREATE VIEW idempotency.record_1 AS SELECT;
 CREATE TABLE public.record_101 (); CREATE TABLE idempotency.records101 ()',
'DELETE FROM pg_extension WHERE extname = ''citus''']) WITH ORDINALITY AS c (change, number) ORDER BY number;

-- None of it is left.
SELECT outcome, convert_from(body, 'UTF8') FROM idem_begin('in one', principal => :'high');

-- The extension is dropped and created again: a session hears of it from whoever touches the table.
BEGIN;
DELETE FROM pg_extension WHERE extname = 'citus';
CALL test.tell();
SELECT shard, "table" FROM idempotency.tables_here();
ROLLBACK;
SELECT outcome FROM idem_begin('in one', principal => :'high');

\c :main
DROP DATABASE catalogs_of_citus;
