-- Promise: changes of the tables by an owner are noticed by their effect, not by names: the heap store
-- serves the tables that it can, SQL serves the rest, and a table that no store can serve is refused before an execution.
\a\pset footer off
\set VERBOSITY terse

-- With idempotency.store = sql, the heap store is not examined.
CREATE FUNCTION test.served(expected text) RETURNS text LANGUAGE sql AS
    $$ SELECT test.by_store(concat_ws(': ', store, why), expected) FROM idempotency.stores $$;

-- A column that was added and dropped again, once or more, leaves the heap store in charge.
SELECT idem_once('before', 'changed');
ALTER TABLE idempotency.record ADD COLUMN tenant text NOT NULL DEFAULT 'none';
SELECT test.served('sql: Its columns are not those of this version.');
SELECT idem_once('between', 'changed');
ALTER TABLE idempotency.record DROP COLUMN tenant;
SELECT test.served('heap');
ALTER TABLE idempotency.record ADD COLUMN tenant integer, ADD COLUMN more jsonb;
ALTER TABLE idempotency.record DROP COLUMN tenant;
SELECT test.served('sql: Its columns are not those of this version.');
ALTER TABLE idempotency.record DROP COLUMN more;
SELECT test.served('heap');
-- Rows of before, between and after, in a whole life.
SELECT key, idem_once(key, 'changed') AS new FROM unnest('{before,between,after}'::text[]) AS key;
SELECT token FROM idem_begin('life', '{"a": 1}', 'changed') \gset
SELECT idem_extend('life', :token, scope => 'changed') IS NOT NULL AS extended,
       idem_checkpoint('life', 'half', '{"n": 1}', scope => 'changed', token => :token) IS NOT NULL AS checkpoint;
SELECT idem_complete('life', 201, 'made', scope => 'changed', token => :token);
SELECT outcome, status_code, convert_from(body, 'UTF8') AS body FROM idem_begin('life', '{"a": 1}', 'changed');
SELECT idem_forget('life', 'changed'), idem_forget('before', 'changed');
BEGIN;
SELECT outcome FROM idem_begin('at commit', scope => 'changed');
COMMIT;
SELECT key, status, attempt FROM idempotency.records WHERE scope = 'changed' ORDER BY key;

-- A check is recognised by its expression.
CREATE FUNCTION test.like_a_record(status "char", lease_until timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT status <> ''i''';
CREATE FUNCTION test.with_check(checked text, is_ours boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE served text;
BEGIN
    ALTER TABLE idempotency.record DROP CONSTRAINT record_valid;
    EXECUTE 'ALTER TABLE idempotency.record ADD CONSTRAINT record_valid CHECK (' || checked || ') NOT VALID';
    served := test.served(CASE WHEN is_ours THEN 'heap' ELSE 'sql: It has check constraints of its own.' END);
    BEGIN
        PERFORM idem_begin('longer than ten', scope => 'changed');
    EXCEPTION WHEN OTHERS THEN served := concat_ws(' ', served, SQLSTATE);
    END;
    RAISE SQLSTATE 'TT000' USING MESSAGE = served;
EXCEPTION WHEN SQLSTATE 'TT000' THEN RETURN SQLERRM;
END $$;
SELECT checked, test.with_check(checked, ours) FROM (VALUES
    ('idempotency.is_record(status, lease_until)', true),
    ('true', false),
    ('length(key) < 10', false),
    ('test.like_a_record(status, lease_until)', false),
    ('idempotency.is_record(status, finished_at)', false),
    ('idempotency.is_record(''c'', lease_until)', false),
    ('NOT idempotency.is_record(status, lease_until)', false),
    ('idempotency.is_record(status, lease_until) AND length(key) < 10', false)) AS c (checked, ours);
SELECT test.served('heap');

-- With keep_history an attempt that could not be kept is not begun.
SELECT idem_policy_set('changed history', keep_history => true);
SELECT token FROM idem_begin('ended late', scope => 'changed history') \gset
CREATE FUNCTION test.noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON idempotency.attempt DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION test.noted();
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', scope => 'changed history');
SELECT idem_once('k', 'changed history');
SELECT outcome FROM idem_execute('k', 'echo(jsonb)', '{}', 'changed history');
$$);
SELECT count(*) FROM idempotency.record WHERE scope = 'changed history' AND key = 'k';
-- Replays and scopes without a history go on.
SELECT outcome FROM idem_begin('ended late', scope => 'changed history');
SELECT idem_once('k', 'changed');
ALTER TABLE idempotency.attempt DISABLE TRIGGER noted;
SELECT idem_once('k', 'changed history');
ALTER TABLE idempotency.attempt ENABLE TRIGGER noted;
-- While a claim is open no session can make one.
DROP TRIGGER noted ON idempotency.attempt;
BEGIN;
SELECT outcome FROM idem_begin('open', scope => 'changed history');
SELECT mode FROM pg_locks WHERE relation = 'idempotency.attempt'::regclass AND pid = pg_backend_pid();
SELECT idem_complete('open', scope => 'changed history');
COMMIT;
SELECT idem_complete('ended late', scope => 'changed history', token => :token);

SELECT idem_policy_drop('changed history');
DROP FUNCTION test.served, test.with_check, test.like_a_record, test.noted;
TRUNCATE idempotency.record, idempotency.attempt, idempotency.policy, idempotency.audit;
