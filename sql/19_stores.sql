-- Which way to the table a session takes: idempotency.store.
SET idempotency.store = auto;

-- A written row gives its key's lock back with the heap store, and keeps it with the SQL store. So
-- the locks tell which of them is at work.
CREATE FUNCTION store_at_work() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    locks bigint;
BEGIN
    PERFORM idem_once(gen_random_uuid()::text, 'stores');
    SELECT count(*) INTO locks FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid();
    RETURN CASE locks WHEN 0 THEN 'heap' WHEN 1 THEN 'sql' END;
END $$;
SELECT store_at_work();
SET idempotency.store = sql;
SELECT store_at_work();
SET idempotency.store = heap;
SELECT store_at_work();
SET idempotency.store = redis;
SET ROLE pg_monitor;
SET idempotency.store = sql;
RESET ROLE;

-- What only the executor sees to is left to it, and noticed at once; the choice "heap" is then an
-- error.
CREATE FUNCTION try_both() RETURNS TABLE (auto text, detail text) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL idempotency.store = auto;
    BEGIN
        auto := store_at_work();
    EXCEPTION WHEN not_null_violation THEN
        auto := 'sql, which is refused';
    END;
    BEGIN
        SET LOCAL idempotency.store = heap;
        detail := store_at_work();
    EXCEPTION WHEN feature_not_supported THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    END;
    RETURN NEXT;
END $$;
SELECT * FROM try_both();

CREATE FUNCTION noticed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% of %', TG_OP, NEW.key IS NOT NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER noticed BEFORE INSERT ON idempotency.record FOR EACH ROW EXECUTE FUNCTION noticed();
SELECT * FROM try_both();
DROP TRIGGER noticed ON idempotency.record;
SELECT * FROM try_both();

CREATE RULE noticed AS ON DELETE TO idempotency.record DO ALSO NOTIFY deleted;
SELECT * FROM try_both();
DROP RULE noticed ON idempotency.record;
-- The server remembers that there was one until it looks again.
VACUUM idempotency.record;
SELECT * FROM try_both();

-- Other constraints than ours, be they as many.
ALTER TABLE idempotency.record DROP CONSTRAINT record_leased, ADD CONSTRAINT short CHECK (length(key) < 100);
SELECT * FROM try_both();
ALTER TABLE idempotency.record DROP CONSTRAINT short;
SELECT * FROM try_both();
TRUNCATE idempotency.record;
ALTER TABLE idempotency.record ALTER COLUMN finished_at SET NOT NULL;
SELECT * FROM try_both();
ALTER TABLE idempotency.record ALTER COLUMN finished_at DROP NOT NULL;
SELECT * FROM try_both();

-- A change that a publication could not pass on is refused, as with SQL.
SET idempotency.store = heap;
SET client_min_messages = error;
CREATE PUBLICATION published FOR TABLE idempotency.record;
ALTER TABLE idempotency.record REPLICA IDENTITY NOTHING;
SELECT token FROM idem_begin('published', scope => 'stores') \gset
SELECT idem_complete('published', 200, 'made', scope => 'stores', token => :token);
SELECT idem_release('published', scope => 'stores', token => :token);
ALTER TABLE idempotency.record REPLICA IDENTITY DEFAULT;
SELECT idem_complete('published', 200, 'made', scope => 'stores', token => :token);
DROP PUBLICATION published;
RESET client_min_messages;

ALTER TABLE idempotency.record ADD COLUMN tenant text;
SELECT * FROM try_both();
ALTER TABLE idempotency.record DROP COLUMN tenant;
-- The dropped column stays in the rows' layout.
SELECT * FROM try_both();
DROP EXTENSION idempotency CASCADE;
CREATE EXTENSION idempotency;
SELECT * FROM try_both();

ALTER TABLE idempotency.record ADD CONSTRAINT short CHECK (length(key) < 100);
SELECT * FROM try_both();
ALTER TABLE idempotency.record DROP CONSTRAINT short;

CREATE UNIQUE INDEX one_key ON idempotency.record (key);
SELECT * FROM try_both();
DROP INDEX idempotency.one_key;
CREATE INDEX by_hour ON idempotency.record (date_trunc('hour', created_at AT TIME ZONE 'UTC'));
SELECT * FROM try_both();
DROP INDEX idempotency.by_hour;
CREATE INDEX failed ON idempotency.record (scope) WHERE status = 'f';
SELECT * FROM try_both();
DROP INDEX idempotency.failed;

CREATE TABLE archive () INHERITS (idempotency.record);
SELECT * FROM try_both();
DROP TABLE archive;
VACUUM ANALYZE idempotency.record;
ALTER TABLE idempotency.record SET UNLOGGED;
SELECT * FROM try_both();
ALTER TABLE idempotency.record SET LOGGED;

-- A further index on plain columns is no obstacle, and it is kept.
CREATE INDEX by_creation ON idempotency.record (created_at);
SELECT * FROM try_both();
SET idempotency.store = heap;
SELECT token FROM idem_begin('indexed', scope => 'stores') \gset
SELECT idem_complete('indexed', 200, 'made', scope => 'stores', token => :token);
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
SELECT bt_index_check('idempotency.by_creation', heapallindexed => true);
DROP INDEX idempotency.by_creation;

-- The table moves, and the indexes are built anew.
SELECT idem_once('moved', 'stores');
VACUUM FULL idempotency.record;
SELECT idem_once('moved', 'stores');
REINDEX TABLE CONCURRENTLY idempotency.record;
SELECT idem_once('moved', 'stores');
SELECT idem_once('moved again', 'stores');
SELECT bt_index_check(indexrelid, heapallindexed => true) FROM pg_index
 WHERE indrelid = 'idempotency.record'::regclass ORDER BY indexrelid;

-- What one statement writes, its next call sees.
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
DROP FUNCTION try_both, store_at_work, noticed;
RESET idempotency.store;
TRUNCATE idempotency.record;
