-- From an installation to that of a newer file. These functions exist only while the file runs.

-- A statement of the file, with its kind and the name of what it makes.
CREATE FUNCTION idempotency.updating_statements(script text, OUT kind text, OUT name text, OUT text text) RETURNS SETOF record
    LANGUAGE sql AS $$
SELECT substring(s FROM '^(\w+)'), substring(s FROM '^\w+ ?([^\n]*)'), '--; ' || s
  FROM unnest((string_to_array(script, E'\n--; '))[2:]) WITH ORDINALITY u (s, n) ORDER BY n $$;

-- The file, and what it has made.
CREATE FUNCTION idempotency.updating_write_down(script text, version text, digest text, place text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    made jsonb := (SELECT jsonb_build_object('version', version, 'digest', digest, 'schema', place,
            'tables', jsonb_agg(s.name ORDER BY s.name) FILTER (WHERE s.kind = 'table'),
            'views', jsonb_agg(s.name ORDER BY s.name) FILTER (WHERE s.kind = 'view'),
            'types', jsonb_agg(s.name ORDER BY s.name) FILTER (WHERE s.kind = 'type'),
            'triggers', jsonb_agg(s.name ORDER BY s.name) FILTER (WHERE s.kind = 'trigger'),
            'routines', (SELECT jsonb_agg(p.oid::regprocedure::text ORDER BY 1) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                          WHERE strpos(script, format(E'\n--; routine %I.%I\n', n.nspname, p.proname)) > 0))
        FROM idempotency.updating_statements(script) s);
    one text;
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION idempotency.installed() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
                   format('SELECT $json$%s$json$::pg_catalog.jsonb', made));
    COMMENT ON FUNCTION idempotency.installed() IS 'the version of managed/idempotency.sql that was run here, and what it has made';
    REVOKE ALL ON FUNCTION idempotency.installed() FROM PUBLIC;
    FOR one IN SELECT a.grantee::regrole FROM pg_proc p, aclexplode(p.proacl) a
                WHERE p.oid = 'idempotency.installed()'::regprocedure AND a.grantee <> p.proowner LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION idempotency.installed() FROM %s', one);
    END LOOP;
END $$;

-- What roles may do by grants of the owner. PUBLIC, pg_monitor and pg_read_all_data have what the file gives them.
CREATE FUNCTION idempotency.updating_rights(installed jsonb) RETURNS jsonb
    LANGUAGE sql AS $$
SELECT coalesce(jsonb_agg(to_jsonb(g)), '[]') FROM (
    SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS identity, format('%I.%I', n.nspname, p.proname) AS name,
           '' AS columns, p.proowner AS owner, a.*
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
     WHERE installed -> 'routines' ? p.oid::regprocedure::text
     UNION ALL
    SELECT 'TABLE', c.oid::regclass::text, c.oid::regclass::text, x.columns, c.relowner, a.*
      FROM pg_class c,
           LATERAL (SELECT '' AS columns, c.relacl AS acl UNION ALL
                    SELECT format('(%I)', attname), attacl FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped) x,
           aclexplode(x.acl) a
     WHERE installed -> 'views' ? c.oid::regclass::text) g
 WHERE g.grantee NOT IN (0, g.owner, 'pg_monitor'::regrole, 'pg_read_all_data'::regrole) $$;

-- Roles that may call all routines of a right: they have been granted them by idem_grant. An operator of
-- an installation without administrators was both.
CREATE FUNCTION idempotency.updating_callers(rights jsonb) RETURNS jsonb
    LANGUAGE plpgsql AS $$
DECLARE
    knows_administrators constant boolean := to_regprocedure('idempotency.routines(text)') IS NOT NULL;
    all_callers jsonb := '[]';
    right_asked text;
    names text[];
BEGIN
    FOREACH right_asked IN ARRAY '{protocol,operator,administrator,worker}'::text[] LOOP
        EXECUTE format('SELECT string_to_array(idempotency.routines(%L), '', '')',
                       CASE WHEN knows_administrators THEN right_asked ELSE (right_asked <> 'protocol')::text END) INTO names;
        all_callers := all_callers || (SELECT coalesce(jsonb_agg(jsonb_build_object('of_right', right_asked, 'role', c.grantee)), '[]') FROM (
            SELECT g.grantee FROM jsonb_to_recordset(rights) g (identity text, grantee oid) WHERE g.identity = ANY (names)
             GROUP BY 1 HAVING count(*) >= cardinality(names)) c);
    END LOOP;
    RETURN all_callers;
END $$;

-- Removes triggers and rights, and comments: what the file does not make anew has none in the end.
CREATE FUNCTION idempotency.updating_clear(installed jsonb, rights jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT jsonb_array_elements_text(installed -> 'triggers') LOOP
        EXECUTE format('DROP TRIGGER %s', one);
    END LOOP;
    FOR one IN SELECT jsonb_array_elements_text(installed -> 'views') LOOP
        EXECUTE format('COMMENT ON VIEW %s IS NULL', one);
    END LOOP;
    FOR one IN SELECT jsonb_array_elements_text(installed -> 'types') LOOP
        EXECUTE format('COMMENT ON TYPE %s IS NULL', one);
    END LOOP;
    FOR one IN SELECT jsonb_array_elements_text(installed -> 'routines') LOOP
        EXECUTE format('COMMENT ON ROUTINE %s IS NULL', one);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', one);
    END LOOP;
    FOR one IN SELECT format('REVOKE ALL ON %s %s FROM %s CASCADE', g.kind, g.identity, g.grantee::regrole)
                 FROM jsonb_to_recordset(rights) g (kind text, identity text, grantee oid) GROUP BY 1
                UNION ALL
               SELECT format('REVOKE ALL ON ROUTINE %s FROM pg_monitor, pg_read_all_data', r) FROM jsonb_array_elements_text(installed -> 'routines') r
                UNION ALL
               SELECT format('REVOKE ALL ON %s FROM pg_monitor', v) FROM jsonb_array_elements_text(installed -> 'views') v LOOP
        EXECUTE one;
    END LOOP;
END $$;

-- A routine keeps its identity, and so what users have built on it, if its declaration is as it was.
CREATE FUNCTION idempotency.updating_routine(name text, statement text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE regexp_replace(statement, '^CREATE (FUNCTION|PROCEDURE)', 'CREATE OR REPLACE \1', 'n');
EXCEPTION WHEN invalid_function_definition OR ambiguous_function OR wrong_object_type THEN
    EXECUTE (SELECT format('DROP ROUTINE %s', string_agg(p.oid::regprocedure::text, ', '))
               FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
              WHERE format('%I.%I', n.nspname, p.proname) = name AND obj_description(p.oid, 'pg_proc') IS NULL);
    EXECUTE statement;
END $$;

-- A type that has changed is made anew, and so are the routines with arguments or results of it.
CREATE FUNCTION idempotency.updating_type(name text, statement text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    users text;
BEGIN
    IF to_regtype(name) IS NULL THEN
        EXECUTE statement;
        RETURN;
    END IF;
    EXECUTE replace(statement, 'CREATE TYPE ' || name, 'CREATE TYPE pg_temp.updating');
    IF idempotency.updating_attributes(name) <> idempotency.updating_attributes('pg_temp.updating') THEN
        users := (SELECT string_agg(DISTINCT d.objid::regprocedure::text, ', ') FROM pg_depend d, pg_type t
                   WHERE t.oid = to_regtype(name) AND d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_type'::regclass
                     AND d.refobjid IN (t.oid, t.typarray));
        IF users IS NOT NULL THEN EXECUTE format('DROP ROUTINE %s', users); END IF;
        EXECUTE format('DROP TYPE %s', name);
        EXECUTE statement;
    END IF;
    DROP TYPE pg_temp.updating;
END $$;

CREATE FUNCTION idempotency.updating_attributes(type text) RETURNS text[]
    LANGUAGE sql AS $$
SELECT array_agg((a.attname, a.atttypid, a.atttypmod, a.attcollation)::text ORDER BY a.attnum)
  FROM pg_attribute a, pg_type t WHERE t.oid = to_regtype(type) AND a.attrelid = t.typrelid AND NOT a.attisdropped $$;

CREATE FUNCTION idempotency.updating_missing_rows(name text, statement text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    is_empty boolean;
BEGIN
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', name) INTO is_empty;
    IF is_empty THEN EXECUTE statement; END IF;
END $$;

-- Tables keep what they have, and views what users have built on them; all else is as the file says.
CREATE FUNCTION idempotency.updating_run(script text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    FOR s IN SELECT * FROM idempotency.updating_statements(script) LOOP
        IF s.kind = 'routine' THEN
            PERFORM idempotency.updating_routine(s.name, s.text);
        ELSIF s.kind = 'type' THEN
            PERFORM idempotency.updating_type(s.name, s.text);
        ELSIF s.kind = 'rows' THEN
            PERFORM idempotency.updating_missing_rows(s.name, s.text);
        ELSIF s.kind = 'schema' OR s.kind IN ('table', 'index') AND to_regclass(s.name) IS NOT NULL THEN
            CONTINUE;
        ELSIF s.kind = 'view' THEN
            EXECUTE regexp_replace(s.text, '^CREATE VIEW', 'CREATE OR REPLACE VIEW', 'n');
        ELSE
            EXECUTE s.text;
        END IF;
    END LOOP;
END $$;

-- A routine whose arguments have changed has a new identity: its name has the grants.
CREATE FUNCTION idempotency.updating_grant(rights jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    g record;
    targets text;
BEGIN
    FOR g IN SELECT * FROM jsonb_to_recordset(rights) r (kind text, identity text, name text, columns text, grantee oid,
                                                         privilege_type text, is_grantable boolean) LOOP
        targets := CASE WHEN g.kind = 'TABLE' THEN to_regclass(g.name)::text ELSE coalesce(to_regprocedure(g.identity)::text,
            (SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
              WHERE format('%I.%I', n.nspname, p.proname) = g.name)) END;
        CONTINUE WHEN targets IS NULL OR g.columns <> '' AND NOT EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = to_regclass(g.name) AND format('(%I)', attname) = g.columns);
        EXECUTE format('GRANT %s %s ON %s %s TO %s %s', g.privilege_type, g.columns, g.kind, targets, g.grantee::regrole,
                       CASE WHEN g.is_grantable THEN 'WITH GRANT OPTION' END);
    END LOOP;
END $$;

-- ALTER DEFAULT PRIVILEGES may give roles rights on all that is made, as Supabase does for anon. Only what the
-- file says, and the owner grants later, counts.
CREATE FUNCTION idempotency.updating_close(script text, installed jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    one text;
BEGIN
    FOR one IN
        SELECT format('REVOKE ALL ON %s %s FROM %s', o.kind, o.identity, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
          FROM (SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS identity, p.proowner AS owner, p.proacl AS acl
                  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                 WHERE strpos(script, format(E'\n--; routine %I.%I\n', n.nspname, p.proname)) > 0
                 UNION ALL
                SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner, c.relacl
                  FROM pg_class c
                 WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relkind IN ('r', 'v', 'S')
                   AND NOT coalesce(c.relkind = 'S' AND installed IS NOT NULL OR installed -> 'tables' ? c.oid::regclass::text, false)
                 UNION ALL
                SELECT 'SCHEMA', 'idempotency', n.nspowner, n.nspacl FROM pg_namespace n
                 WHERE n.nspname = 'idempotency' AND installed IS NULL) o, aclexplode(o.acl) a
         WHERE a.grantee NOT IN (o.owner, 'pg_monitor'::regrole, 'pg_read_all_data'::regrole) AND NOT (o.kind = 'ROUTINE' AND a.grantee = 0)
         GROUP BY 1 LOOP
        EXECUTE one;
    END LOOP;
END $$;

CREATE FUNCTION idempotency.updating_drop_stale(installed jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    stale text;
BEGIN
    stale := (SELECT string_agg(v, ', ') FROM jsonb_array_elements_text(installed -> 'views') v
               WHERE to_regclass(v) IS NOT NULL AND obj_description(to_regclass(v), 'pg_class') IS NULL);
    IF stale IS NOT NULL THEN EXECUTE format('DROP VIEW %s', stale); END IF;
    stale := (SELECT string_agg(r, ', ') FROM jsonb_array_elements_text(installed -> 'routines') r
               WHERE to_regprocedure(r) IS NOT NULL AND obj_description(to_regprocedure(r), 'pg_proc') IS NULL);
    IF stale IS NOT NULL THEN EXECUTE format('DROP ROUTINE %s', stale); END IF;
    stale := (SELECT string_agg(t, ', ') FROM jsonb_array_elements_text(installed -> 'types') t
               WHERE to_regtype(t) IS NOT NULL AND obj_description(to_regtype(t), 'pg_type') IS NULL);
    IF stale IS NOT NULL THEN EXECUTE format('DROP TYPE %s', stale); END IF;
END $$;

-- Waits for each transaction that has called a function. Calls lock tables in orders of their own. So this
-- waits for one table without limit, and for the others less long than a deadlock takes to be found.
CREATE FUNCTION idempotency.updating_lock(tables text[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    one text;
    timeout_before constant text := current_setting('lock_timeout');
BEGIN
    LOOP
        BEGIN
            FOREACH one IN ARRAY tables LOOP
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', one);
                PERFORM set_config('lock_timeout', '100ms', true);
            END LOOP;
            PERFORM set_config('lock_timeout', timeout_before, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF one = tables[1] THEN RAISE; END IF;
            tables := one || array_remove(tables, one);
        END;
    END LOOP;
END $$;

CREATE FUNCTION idempotency.updating(script text, installed jsonb, steps text[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    rights jsonb;
    callers jsonb;
    one record;
BEGIN
    PERFORM idempotency.updating_lock(ARRAY(SELECT jsonb_array_elements_text(installed -> 'tables')));
    rights := idempotency.updating_rights(installed);
    callers := idempotency.updating_callers(rights);
    PERFORM idempotency.updating_clear(installed, rights);
    FOR i IN 1 .. cardinality(steps) / 2 LOOP
        IF string_to_array(steps[2 * i - 1], '.')::integer[] > string_to_array(installed ->> 'version', '.')::integer[] THEN
            EXECUTE steps[2 * i];
        END IF;
    END LOOP;
    BEGIN
        PERFORM idempotency.updating_run(script);
    EXCEPTION WHEN invalid_table_definition OR dependent_objects_still_exist THEN
        EXECUTE (SELECT format('DROP VIEW %s', string_agg(v, ', ')) FROM jsonb_array_elements_text(installed -> 'views') v);
        PERFORM idempotency.updating_run(script);
    END;
    PERFORM idempotency.updating_drop_stale(installed);
    PERFORM idempotency.updating_close(script, installed);
    PERFORM idempotency.updating_grant(rights);
    -- A right may have got new functions.
    FOR one IN SELECT c ->> 'of_right' AS of_right, (c ->> 'role')::oid::regrole AS role FROM jsonb_array_elements(callers) c LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', idempotency.routines(one.of_right), one.role);
    END LOOP;
END $$;
