-- Promise: keys that differ in a byte are different keys, with any collations that an owner chooses.
\a\pset footer off
\set SHOW_CONTEXT never

-- A server that was built without ICU has no collation that could do harm.
-- (The catalogs of 16 and later name "unicode" as one of ICU's there too.)
SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collname = 'und-x-icu') AS no_icu \gset
\if :no_icu
\quit
\endif

CREATE FUNCTION test.served(expected text) RETURNS text LANGUAGE sql AS
    $$ SELECT test.by_store(concat_ws(': ', store, why), expected) FROM idempotency.stores $$;

-- Where a collation takes different keys for the same one, no store keeps them apart. (The views are in
-- the way of such a change.)
CREATE COLLATION test.careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
SELECT idem_once('Order', 'changed');
CREATE FUNCTION test.tried(statement text, OUT came_of_it text) LANGUAGE plpgsql AS $$
DECLARE detail text;
BEGIN
    EXECUTE statement INTO came_of_it;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    came_of_it := concat_ws(' ', SQLSTATE, SQLERRM || ':', detail);
END $$;
BEGIN;
ALTER EXTENSION idempotency DROP VIEW idempotency.records;
DROP VIEW idempotency.records CASCADE;
ALTER TABLE idempotency.record ALTER COLUMN key TYPE text COLLATE test.careless;
SELECT test.tried($$SELECT idem_once('order', 'changed')$$);
SELECT test.tried($$SELECT outcome FROM idem_begin('order', scope => 'changed')$$);
SELECT test.tried($$SELECT status FROM idem_get('order', 'changed')$$);
SELECT test.tried($$SELECT idem_forget('order', 'changed')$$);
ALTER TABLE idempotency.record ALTER COLUMN key TYPE text COLLATE "C", ALTER COLUMN scope TYPE text COLLATE test.careless;
SELECT test.tried($$SELECT outcome FROM idem_begin('Order', scope => 'Changed')$$);
ALTER TABLE idempotency.record ALTER COLUMN scope TYPE text COLLATE "C", ALTER COLUMN principal TYPE text COLLATE test.careless;
SELECT test.tried($$SELECT outcome FROM idem_begin('Order', scope => 'changed', principal => 'P')$$);
-- One that only orders otherwise does no harm.
ALTER TABLE idempotency.record ALTER COLUMN principal TYPE text COLLATE "und-x-icu", ALTER COLUMN key TYPE text COLLATE "und-x-icu";
SELECT test.tried($$SELECT outcome FROM idem_begin('order', scope => 'changed')$$),
       test.tried($$SELECT outcome FROM idem_begin('Order', scope => 'changed')$$), test.served('heap');
ROLLBACK;
SELECT idem_once('Order', 'changed'), idem_once('order', 'changed');

DROP FUNCTION test.served, test.tried;
DROP COLLATION test.careless;
TRUNCATE idempotency.record;
