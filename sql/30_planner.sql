-- Promise: the planner knows that deciding functions have effects: each is volatile, unsafe to run in
-- parallel, and has a high cost, so that it comes after every other condition of the same scan.
\a\pset footer off
\set SHOW_CONTEXT never

-- All but the pure helpers, and functions that only read or announce.
SELECT p.oid::regprocedure AS not_as_it_should_be, p.provolatile, p.proparallel, p.procost
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
  JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e'
 WHERE e.extname = 'idempotency' AND p.pronamespace <> 'idempotency'::regnamespace
   AND p.prokind = 'f' AND (p.provolatile, p.proparallel, p.procost) IS DISTINCT FROM ('v', 'u', 10000)
   AND p.proname <> ALL ('{idem_fingerprint,idem_key,idem_event_id,idem_parse_key,idem_http_status,idem_problem,idem_backoff,idem_response}');
-- The pure helpers are unchanged.
SELECT DISTINCT p.provolatile, p.proparallel
  FROM pg_proc p
 WHERE p.proname = ANY ('{idem_fingerprint,idem_key,idem_event_id,idem_parse_key,idem_http_status,idem_problem,idem_backoff,idem_response}');

-- So a condition beside it is asked first, wherever it stands.
CREATE TABLE test.message (id text PRIMARY KEY, kind text);
INSERT INTO test.message VALUES ('m1', 'payment'), ('m2', 'other');
CREATE FUNCTION test.is_ok(kind text) RETURNS boolean LANGUAGE plpgsql COST 5000 AS
    $$ BEGIN RETURN kind = 'payment'; END $$;
SELECT id FROM test.message WHERE idem_once(id, 'planner') AND test.is_ok(kind);
SELECT key FROM idempotency.records WHERE scope = 'planner';

-- The form that loses nothing: what is to be handled is settled, and locked, before the first key is
-- asked for, and what has been recorded is handled by the same statement.
WITH message AS MATERIALIZED (
    SELECT id, kind FROM test.message WHERE test.is_ok(kind) ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED
), asked AS MATERIALIZED (
    SELECT id, idem_once(id, 'planner-cte', same_statement => true) AS first FROM message
)
SELECT id FROM asked WHERE first;
SELECT key FROM idempotency.records WHERE scope = 'planner-cte';

-- As a condition it is asked by the scan of its table, whatever a join or a limit leaves out later: such a
-- message is recorded and lost. Where the join comes first, nothing is recorded.
CREATE TABLE test.account (message text, open boolean);
INSERT INTO test.account VALUES ('elsewhere', true), ('m1', false);
SET enable_nestloop = off;
SET enable_mergejoin = off;
SELECT m.id FROM test.message m JOIN test.account a ON a.message = m.id WHERE a.open AND idem_once(m.id, 'planner-join');
SELECT id FROM test.message WHERE idem_once(id, 'planner-limit') ORDER BY kind LIMIT 1;
WITH joined AS MATERIALIZED (
    SELECT m.id FROM test.message m JOIN test.account a ON a.message = m.id WHERE a.open
), asked AS MATERIALIZED (
    SELECT id, idem_once(id, 'planner-first', same_statement => true) AS first FROM joined
)
SELECT id FROM asked WHERE first;
RESET enable_nestloop;
RESET enable_mergejoin;
SELECT scope, count(*) FROM idempotency.records
 WHERE scope IN ('planner-join', 'planner-limit', 'planner-first') GROUP BY scope ORDER BY scope;
DROP TABLE test.account;

-- A wrapper that says of itself that it may run in parallel is told so, whoever runs it: the leader
-- or a worker. No caller should see an internal error.
CREATE FUNCTION test.wrapped_get(key text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE COST 100000 AS
    $$ BEGIN RETURN (idem_get(key, 'planner')).status; END $$;
CREATE FUNCTION test.wrapped_once(key text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE COST 100000 AS
    $$ BEGIN RETURN idem_once(key, 'planner'); END $$;
CREATE FUNCTION test.wrapped(call text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE COST 100000 AS
    $$ DECLARE result text; BEGIN EXECUTE 'SELECT ' || call INTO result; RETURN result; END $$;
INSERT INTO test.message SELECT 'n' || i, 'other' FROM generate_series(1, 1000) i;
ANALYZE test.message;
-- The name of the setting differs between versions.
SELECT set_config(name, CASE WHEN vartype = 'bool' THEN 'on' WHEN 'on' = ANY (enumvals) THEN 'on' ELSE 'regress' END, false) AS forced
  FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
\set VERBOSITY sqlstate
SELECT count(test.wrapped_get(id)) FROM test.message;
SELECT count(test.wrapped_once(id)) FROM test.message;
SET parallel_leader_participation = off;
SELECT count(test.wrapped_get(id)) FROM test.message;
SELECT count(test.wrapped_once(id)) FROM test.message;
\set VERBOSITY default
SELECT test.wrapped_get('m1');
\echo :SQLSTATE
DO $$
DECLARE
    call text;
BEGIN
    FOREACH call IN ARRAY '{
        "idem_begin(''m1'', scope => ''planner'')", "idem_complete(''m1'')", "idem_fail(''m1'')",
        "idem_extend(''m1'', 1)", "idem_checkpoint(''m1'', ''p'')", "idem_release(''m1'')",
        "idem_once(''m1'', ''planner'')", "idem_execute(''m1'', ''echo(jsonb)'', ''1'', ''planner'')",
        "idem_get(''m1'', ''planner'')", "idem_resolve(''m1'', ''fail'')", "idem_forget(''m1'')",
        "idem_cleanup()", "idem_policy_set(''planner'')", "idem_policy_alter(''planner'')", "idem_policy_drop(''planner'')",
        "idem_grant(''pg_monitor'')", "idem_revoke(''pg_monitor'')"}'::text[]
    LOOP
        BEGIN
            EXECUTE 'SELECT test.wrapped($1)' USING call;
            RAISE NOTICE '%: not refused', call;
        EXCEPTION WHEN OTHERS THEN
            RAISE NOTICE '%: % %', call, SQLSTATE, SQLERRM;
        END;
    END LOOP;
END $$;
SELECT set_config(name, reset_val, false) AS forced
  FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
RESET parallel_leader_participation;

DROP FUNCTION test.is_ok, test.wrapped_get, test.wrapped_once, test.wrapped;
DROP TABLE test.message;
