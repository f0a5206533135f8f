-- Promise: CREATE EXTENSION is the only step. Every object has a comment. Roles other than the owner
-- may call only the pure helpers.
--
-- Here and in the other files a result is a line of names and a line for each row.
\a\pset footer off

CREATE EXTENSION idempotency;

-- Helpers of the other files. "seen" shows every field of an answer that is not null, and of those
-- that differ from run to run only that they are there.
CREATE SCHEMA test;
CREATE FUNCTION test.seen(answer anyelement) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog AS $$
    SELECT string_agg(name || '=' || CASE
               WHEN name IN ('token', 'retry_after', 'created_at', 'finished_at', 'lease_until',
                             'expires_at') THEN 'set'
               ELSE value END, ' ' ORDER BY position)
      FROM json_each_text(to_json(answer)) WITH ORDINALITY AS f (name, value, position)
     WHERE value <> '' AND name <> 'scope' $$;

-- Time passes for the records of a scope: all their moments move into the past.
CREATE FUNCTION test.let_pass(span interval, in_scope text) RETURNS void
    LANGUAGE sql AS $$
    UPDATE idempotency.record
       SET created_at = created_at - span, claimed_at = claimed_at - span,
           expires_at = expires_at - span, retained_until = retained_until - span,
           lease_until = lease_until - span, next_attempt_at = next_attempt_at - span,
           finished_at = finished_at - span
     WHERE scope = in_scope $$;

-- Everything that the extension stores, as one value: equal before and after what changes nothing.
CREATE FUNCTION test.stored() RETURNS text
    LANGUAGE sql AS $$
    SELECT md5(coalesce((SELECT string_agg(r::text, ' ' ORDER BY scope, principal, key)
                           FROM idempotency.record r), '') || '/' ||
               coalesce((SELECT string_agg(p::text, ' ' ORDER BY scope_pattern)
                           FROM idempotency.policy p), '')) $$;

-- A table of refused statements: each ends with a semicolon at the end of its line. ":token" in them is
-- the second argument. One that is not refused is rolled back, and its error says so.
CREATE FUNCTION public.refused(statements text, token bigint DEFAULT NULL, OUT statement text,
                               OUT code text, OUT error text, OUT detail text, OUT hint text)
    RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    statements := regexp_replace(statements, '^--.*$', '', 'gn');
    FOR statement IN SELECT btrim(s, E' \n') FROM regexp_split_to_table(statements, ';\s*\n') s LOOP
        CONTINUE WHEN statement = '';
        BEGIN
            EXECUTE replace(statement, ':token', coalesce(token::text, 'NULL'));
            RAISE 'the statement was accepted';
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, error = MESSAGE_TEXT,
                                    detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
        END;
        RETURN NEXT;
    END LOOP;
END $$;

-- An operation that PUBLIC may run.
CREATE FUNCTION public.echo(request jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE RETURN request;

-- How many key locks this session holds.
CREATE FUNCTION test.locks(OUT keys bigint)
    LANGUAGE sql AS $$
    SELECT count(*) FILTER (WHERE objsubid = 18756)
      FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() $$;

-- Differences that the two stores promise.
CREATE FUNCTION test.by_store(heap anyelement, sql anyelement) RETURNS anyelement
    LANGUAGE sql AS $$
    SELECT CASE current_setting('idempotency.store') WHEN 'sql' THEN sql ELSE heap END $$;

-- The functions and their properties.
SELECT p.oid::regprocedure AS function, obj_description(p.oid, 'pg_proc') AS comment
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
  JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e'
 WHERE e.extname = 'idempotency'
 ORDER BY p.oid::regprocedure::text COLLATE "C";

-- Tables, views, types and the schema are commented as well. (Row types and arrays come of
-- themselves.)
SELECT o.object, obj_description(d.objid, d.classid::regclass::text::name) AS comment
  FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e'
 CROSS JOIN pg_describe_object(d.classid, d.objid, 0) AS o (object)
 WHERE e.extname = 'idempotency' AND d.classid <> 'pg_proc'::regclass
   AND o.object NOT LIKE 'type idempotency.%' AND o.object NOT LIKE '%[]'
 ORDER BY o.object COLLATE "C";

-- Executable by PUBLIC: the pure helpers, and the check of the records.
SELECT p.oid::regprocedure AS public_function, p.provolatile AS volatility, p.proparallel AS parallel
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
  JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e'
 CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
 WHERE e.extname = 'idempotency' AND a.grantee = 0
 ORDER BY p.oid::regprocedure::text COLLATE "C";

-- None is SECURITY DEFINER: idem_execute has to run its operation as the caller.
SELECT count(*) AS security_definer_functions
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
  JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e'
 WHERE e.extname = 'idempotency' AND p.prosecdef;

-- The schema and its objects belong to the owner. Monitoring roles may read all but secrets.
SELECT a.grantee::regrole AS role, a.privilege_type AS schema_right
  FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) a
 WHERE n.nspname = 'idempotency' AND a.grantee <> n.nspowner;
SELECT c.relname, a.grantee::regrole AS role, a.privilege_type AS right
  FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
 WHERE c.relnamespace = 'idempotency'::regnamespace AND a.grantee <> c.relowner
 ORDER BY 1;
-- Of records, not the requests and answers.
SELECT t.attrelid::regclass AS relation, string_agg(t.attname, ' ' ORDER BY t.attnum) FILTER (WHERE t.attacl IS NULL) AS hidden
  FROM pg_attribute t
 WHERE t.attrelid = 'idempotency.records'::regclass AND t.attnum > 0 GROUP BY 1;
SELECT DISTINCT t.attrelid::regclass AS relation, a.grantee::regrole AS role, a.privilege_type AS right
  FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid CROSS JOIN aclexplode(t.attacl) a
 WHERE c.relnamespace = 'idempotency'::regnamespace
 ORDER BY 1;

-- Records survive a crash, and go into a dump together with policies.
SELECT c.relname, c.relpersistence AS persistence, c.oid = ANY (e.extconfig) AS dumped
  FROM pg_class c, pg_extension e
 WHERE e.extname = 'idempotency' AND c.relnamespace = 'idempotency'::regnamespace
   AND c.relkind = 'r'
 ORDER BY 1;
