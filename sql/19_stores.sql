-- Promise: changes of the table from outside the protocol, and the server's work on any table, do not
-- harm records. Each store runs this with the same output. test/tap/014_stores.pl tests which of them a
-- table allows.
\a\pset footer off
\set SHOW_CONTEXT never

-- A change that a publication could not pass on is refused, as with SQL.
SET client_min_messages = error;
SELECT token FROM idem_begin('published', scope => 'stores') \gset
CREATE PUBLICATION published FOR TABLE idempotency.record;
ALTER TABLE idempotency.record REPLICA IDENTITY NOTHING;
SELECT idem_complete('published', 200, 'made', scope => 'stores', token => :token);
SELECT idem_release('published', scope => 'stores', token => :token);
-- Nor is a key granted whose result could not be recorded.
SELECT outcome FROM idem_begin('another', scope => 'stores');
ALTER TABLE idempotency.record REPLICA IDENTITY DEFAULT;
SELECT idem_complete('published', 200, 'made', scope => 'stores', token => :token);
DROP PUBLICATION published;
RESET client_min_messages;

-- A further index on plain columns is kept.
CREATE INDEX by_creation ON idempotency.record (created_at);
SELECT token FROM idem_begin('indexed', scope => 'stores') \gset
SELECT idem_complete('indexed', 200, 'made', scope => 'stores', token => :token);
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
SELECT bt_index_check('idempotency.by_creation', heapallindexed => true);
DROP INDEX idempotency.by_creation;

-- An index of claims in progress has those and no others, whichever way a record comes about and
-- whatever its owner does about the index: told by both ways to the rows, and by amcheck.
CREATE PROCEDURE come_about(name text) LANGUAGE plpgsql AS $$
DECLARE
    prolonged bigint;
    claimed bigint;
BEGIN
    PERFORM idem_once(name || ', once', 'stores');
    PERFORM FROM idem_begin(name || ', at once', scope => 'stores');
    PERFORM idem_complete(name || ', at once', 200, 'made'::text, scope => 'stores');
    COMMIT;
    PERFORM idem_begin(name || ', again', scope => 'stores');
    PERFORM idem_fail(name || ', again', retryable => true, scope => 'stores');
    SELECT token INTO prolonged FROM idem_begin(name || ', left', scope => 'stores');
    SELECT token INTO claimed FROM idem_begin(name || ', later', scope => 'stores');
    COMMIT;
    PERFORM idem_extend(name || ', left', prolonged, scope => 'stores');
    PERFORM idem_complete(name || ', later', 200, 'made'::text, scope => 'stores', token => claimed);
    COMMIT;
END $$;
CREATE FUNCTION by_table() RETURNS bigint LANGUAGE sql
    SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
    AS $$ SELECT count(*) FROM idempotency.record WHERE status = 'i' AND claimed_at > '-infinity' $$;
CREATE FUNCTION by_index() RETURNS bigint LANGUAGE sql
    SET enable_seqscan = off SET enable_bitmapscan = off
    AS $$ SELECT count(*) FROM idempotency.record WHERE status = 'i' AND claimed_at > '-infinity' $$;
CREATE VIEW indexed AS
    SELECT by_table(), by_index(),
           (SELECT count(bt_index_check(indexrelid, heapallindexed => true)::text)
              FROM pg_index WHERE indrelid = 'idempotency.record'::regclass) AS whole;
TRUNCATE idempotency.record;
CALL come_about('as installed');
TABLE indexed;
CREATE INDEX by_lease ON idempotency.record (lease_until) WHERE status = ANY ('{i,u,x}');
CALL come_about('two of them');
TABLE indexed;
DROP INDEX idempotency.by_lease;
REINDEX INDEX CONCURRENTLY idempotency.record_outstanding;
CALL come_about('built anew');
TABLE indexed;
ALTER INDEX idempotency.record_outstanding RENAME TO at_work;
CALL come_about('by another name');
TABLE indexed;
CREATE INDEX record_outstanding ON idempotency.record (claimed_at);
CALL come_about('its name for one of all records');
TABLE indexed;
DROP INDEX idempotency.at_work;
CALL come_about('without it');
TABLE indexed;
DROP INDEX idempotency.record_outstanding;
CREATE INDEX record_outstanding ON idempotency.record (claimed_at) WHERE status <> 'i';
CALL come_about('its name for the others');
TABLE indexed;
DROP INDEX idempotency.record_outstanding;
CREATE INDEX record_outstanding ON idempotency.record (claimed_at)
    WHERE status OPERATOR(pg_catalog.=) ANY ('{i,u,x}'::"char"[]);
CALL come_about('made again');
TABLE indexed;
DROP VIEW indexed;
DROP FUNCTION by_table, by_index;
DROP PROCEDURE come_about;

-- The table moves, and the indexes are rebuilt.
SELECT idem_once('moved', 'stores');
VACUUM FULL idempotency.record;
SELECT idem_once('moved', 'stores');
REINDEX TABLE CONCURRENTLY idempotency.record;
SELECT idem_once('moved', 'stores');
SELECT idem_once('moved again', 'stores');
SELECT bt_index_check(indexrelid, heapallindexed => true) FROM pg_index
 WHERE indrelid = 'idempotency.record'::regclass ORDER BY indexrelid;

-- A statement's writes are visible to its next call.
BEGIN;
SELECT (idem_begin('one statement', scope => 'stores')).outcome AS first,
       idem_checkpoint('one statement', 'a', scope => 'stores') IS NOT NULL AS checkpoint,
       idem_complete('one statement', 200, 'done', scope => 'stores') AS completed,
       (idem_begin('one statement', scope => 'stores')).outcome AS then;
COMMIT;
-- Large values go to the TOAST table, also when they are written at COMMIT.
BEGIN;
SELECT outcome FROM idem_begin('large', scope => 'stores', lease => '1 ms');
SELECT idem_checkpoint('large', 'halfway', jsonb_build_object('data', string_agg(md5(i::text), '')), scope => 'stores')
       IS NOT NULL AS checkpoint FROM generate_series(1, 3000) i;
COMMIT;
SELECT pg_sleep(0.01);
SELECT length(state ->> 'data') AS state, attempt FROM idem_begin('large', scope => 'stores');
DROP EXTENSION amcheck;
TRUNCATE idempotency.record;
