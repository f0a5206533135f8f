-- From the edition without C to the module, in place: a superuser runs this file in the database, on a
-- server that has the module. It is one statement: it succeeds, or changes nothing. See docs/managed.md.
--
-- The database's owner may have made anything of the objects that it finds. So this calls none of them,
-- and reads from tables only, with columns of the module's types.
DO $to_module$
DECLARE
    installed jsonb;
    place text;
    owner regrole;
    rights jsonb;
    tables oid[];
    fault text;
    relation text;
    list text;
    targets text;
    one record;
    held oid;
    timeout_before text;
    path_before text;
BEGIN
    path_before := pg_catalog.current_setting('search_path');
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    SELECT n.nspowner, split_part(p.prosrc, '$json$', 2)::jsonb INTO owner, installed
      FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'installed' AND p.pronargs = 0
     WHERE n.nspname = 'idempotency';
    place := installed ->> 'schema';
    IF place IS NULL THEN
        RAISE EXCEPTION 'the edition without C is not installed in this database'
            USING ERRCODE = '55000', HINT = 'Run CREATE EXTENSION idempotency where there is none.';
    ELSIF installed ->> 'version' IS DISTINCT FROM (SELECT e.default_version FROM pg_available_extensions e WHERE e.name = 'idempotency') THEN
        RAISE EXCEPTION 'version % is installed, and the server has the module in version %', installed ->> 'version',
            coalesce((SELECT e.default_version FROM pg_available_extensions e WHERE e.name = 'idempotency'), 'none')
            USING ERRCODE = '0A000', HINT = 'Run managed/idempotency.sql of the version of the module first.';
    ELSIF owner <> (SELECT datdba FROM pg_database WHERE datname = current_database()) AND NOT (SELECT rolsuper FROM pg_roles WHERE oid = owner) THEN
        RAISE EXCEPTION 'the schema idempotency belongs to %, who does not own the database', owner
            USING ERRCODE = '42501', HINT = 'Make it the owner of the database for this change if you trust it.';
    END IF;

    -- ---- alone ----
    -- This waits for each transaction that has called a function, and later calls wait for this. Calls lock
    -- tables in orders of their own. So this waits for one table without limit, and for the others less
    -- long than a deadlock takes to be found.
    tables := ARRAY(SELECT oid FROM pg_class WHERE relnamespace = 'idempotency'::regnamespace AND relkind = 'r' ORDER BY relname <> 'record');
    timeout_before := current_setting('lock_timeout');
    LOOP
        BEGIN
            FOREACH held IN ARRAY tables LOOP
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', held::regclass);
                PERFORM set_config('lock_timeout', '100ms', true);
            END LOOP;
            PERFORM set_config('lock_timeout', timeout_before, true);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF held = tables[1] THEN RAISE; END IF;
            tables := held || array_remove(tables, held);
        END;
    END LOOP;

    -- ---- what is there ----
    -- Ordinary tables with PostgreSQL's own types, and nothing that this file would lose.
    fault := (SELECT string_agg(o.what, ', ') FROM (
        SELECT 'no table ' || t FROM jsonb_array_elements_text(installed -> 'tables' || '["idempotency.record", "idempotency.removal"]') t
         WHERE NOT coalesce(to_regclass(t) = ANY (tables), false)
         UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, a.attrelid, a.attnum) FROM pg_attribute a LEFT JOIN pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = ANY (tables) AND NOT a.attisdropped AND (a.attgenerated <> '' OR t.typnamespace <> 'pg_catalog'::regnamespace)
         UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) || ' of ' || c.relowner::regrole FROM pg_class c
         WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relowner <> owner
         UNION ALL
        SELECT pg_describe_object('pg_proc'::regclass, p.oid, 0) || ' of ' || p.proowner::regrole FROM pg_proc p
         WHERE (p.pronamespace = 'idempotency'::regnamespace OR installed -> 'routines' ? p.oid::regprocedure::text) AND p.proowner <> owner
         UNION ALL
        SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0) FROM pg_trigger t WHERE t.tgrelid = ANY (tables) AND NOT t.tgisinternal
           AND NOT installed -> 'triggers' ? format('%I ON %s', t.tgname, t.tgrelid::regclass)
         UNION ALL
        SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY (tables)
           AND d.classid = ANY ('{pg_rewrite,pg_policy,pg_publication_rel,pg_statistic_ext}'::regclass[]) AND NOT EXISTS (
               SELECT FROM pg_rewrite r WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND r.ev_class <> ALL (tables))
         UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, i.inhrelid, 0) FROM pg_inherits i
         WHERE i.inhrelid = ANY (tables) OR i.inhparent = ANY (tables)) o (what));
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'the installation has been changed' USING ERRCODE = '55000', DETAIL = fault, HINT = 'Undo these changes first.';
    END IF;
    -- A removed record leaves no trace in a table that is copied, so no older snapshot may remain.
    IF EXISTS (SELECT FROM pg_stat_activity a
                WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
                  AND a.backend_xmin IS NOT NULL
                  AND (a.xact_start < clock_timestamp() - interval '1 hour'
                       OR age(a.backend_xmin) >= (SELECT min(age(r.removed_in::xid)) FROM idempotency.removal r))) THEN
        RAISE EXCEPTION 'a transaction has a snapshot from before the last removal of a record'
            USING ERRCODE = '55006', HINT = 'Run this file again when it has ended.';
    END IF;
    rights := (SELECT jsonb_agg(to_jsonb(g)) FROM (
        SELECT 'ROUTINE' AS kind, format('%I.%I', n.nspname, p.proname) AS name, '' AS columns, a.*
          FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
         WHERE installed -> 'routines' ? p.oid::regprocedure::text
         UNION ALL
        SELECT 'TABLE', c.oid::regclass::text, x.columns, a.*
          FROM pg_class c,
               LATERAL (SELECT '' AS columns, c.relacl AS acl UNION ALL
                        SELECT format('(%I)', attname), attacl FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped) x,
               aclexplode(x.acl) a
         WHERE c.relnamespace = 'idempotency'::regnamespace) g
     WHERE g.grantee NOT IN (0, owner, 'pg_monitor'::regrole));

    -- ---- its objects make way, except for the tables ----
    FOR one IN SELECT t.tgname, t.tgrelid::regclass AS rel FROM pg_trigger t WHERE t.tgrelid = ANY (tables) AND NOT t.tgisinternal LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.rel);
    END LOOP;
    FOR one IN SELECT c.conname, c.conrelid::regclass AS rel FROM pg_constraint c WHERE c.conrelid = ANY (tables) AND c.contype = 'c' LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.rel, one.conname);
    END LOOP;
    EXECUTE (SELECT format('DROP VIEW %s', string_agg(c.oid::regclass::text, ', ')) FROM pg_class c
              WHERE c.relkind = 'v' AND installed -> 'views' ? c.oid::regclass::text);
    EXECUTE (SELECT format('DROP ROUTINE idempotency.installed(), %s', string_agg(p.oid::regprocedure::text, ', ')) FROM pg_proc p
              WHERE installed -> 'routines' ? p.oid::regprocedure::text);
    EXECUTE (SELECT format('DROP TYPE %s', string_agg(t.oid::regtype::text, ', ')) FROM pg_type t
              WHERE t.typtype = 'c' AND installed -> 'types' ? t.oid::regtype::text);
    ALTER SCHEMA idempotency RENAME TO idempotency_before;
    EXECUTE format('CREATE EXTENSION idempotency SCHEMA %s', place);

    -- ---- rows ----
    FOREACH relation IN ARRAY '{seed,policy,record,attempt,audit,journal}'::text[] LOOP
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO list FROM pg_attribute a
         WHERE a.attrelid = to_regclass('idempotency.' || relation) AND a.attnum > 0;
        fault := (SELECT string_agg(o.what, ', ') FROM (
            (SELECT 'column ' || attname || ' ' || atttypid::regtype || ' ' || attcollation::regcollation FROM pg_attribute
              WHERE attrelid = to_regclass('idempotency_before.' || relation) AND attnum > 0 AND NOT attisdropped
                AND NOT (relation = 'record' AND attname IN ('written_in', 'open_claim', 'before'))
             EXCEPT
             SELECT 'column ' || attname || ' ' || atttypid::regtype || ' ' || attcollation::regcollation FROM pg_attribute
              WHERE attrelid = to_regclass('idempotency.' || relation))
             UNION ALL
            (SELECT 'index ' || c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass('idempotency_before.' || relation)
             EXCEPT
             SELECT 'index ' || c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass('idempotency.' || relation))) o (what));
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION 'the table idempotency.% has been changed', relation
                USING ERRCODE = '55000', DETAIL = fault, HINT = 'Undo these changes first.';
        END IF;
        IF relation = 'journal' THEN DELETE FROM idempotency.journal; END IF;
        EXECUTE format('INSERT INTO idempotency.%I (%s) SELECT %2$s FROM idempotency_before.%1$I', relation, list);
    END LOOP;
    -- The owner of this edition may not see when a session of another role began.
    UPDATE idempotency.record r
       SET backend_start = coalesce((SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = r.backend_pid), '-infinity')
     WHERE r.backend_pid IS NOT NULL AND r.backend_start IS NULL;
    EXECUTE (SELECT format('DROP TABLE %s', string_agg(t::regclass::text, ', ')) FROM unnest(tables) t);
    DROP SCHEMA idempotency_before;

    -- ---- rights ----
    FOR one IN SELECT * FROM jsonb_to_recordset(rights) r (kind text, name text, columns text, grantee oid, privilege_type text, is_grantable boolean) LOOP
        targets := CASE one.kind WHEN 'TABLE' THEN to_regclass(one.name)::text ELSE (
            SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE format('%I.%I', n.nspname, p.proname) = one.name) END;
        CONTINUE WHEN targets IS NULL OR one.columns <> '' AND NOT EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = to_regclass(one.name) AND format('(%I)', attname) = one.columns);
        EXECUTE format('GRANT %s %s ON %s %s TO %s %s', one.privilege_type, one.columns, one.kind, targets, one.grantee::regrole,
                       CASE WHEN one.is_grantable THEN 'WITH GRANT OPTION' END);
        IF one.kind = 'TABLE' THEN EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', one.grantee::regrole); END IF;
    END LOOP;
    IF owner <> current_user::regrole THEN
        EXECUTE format('SELECT %s.idem_grant(%L, true, %L)', place, owner, 'owned the edition without C');
        EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', owner);
        -- It reads all views, as it did, by the functions that pg_monitor has.
        EXECUTE (SELECT format('GRANT SELECT ON %s TO %s', string_agg(c.oid::regclass::text, ', '), owner) FROM pg_class c
                  WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relkind = 'v');
        EXECUTE (SELECT format('GRANT EXECUTE ON ROUTINE %s TO %s', string_agg(p.oid::regprocedure::text, ', '), owner) FROM pg_proc p, aclexplode(p.proacl) a
                  WHERE p.pronamespace = 'idempotency'::regnamespace AND a.grantee = 'pg_monitor'::regrole);
    END IF;
    PERFORM set_config('search_path', path_before, true);
    RAISE NOTICE 'idempotency is the module now; % is its operator', owner;
END
$to_module$;
