-- From the edition without C to the module, in place: a superuser runs this file in the database, on a
-- server that has the module. It is one statement: it succeeds, or changes nothing. See docs/managed.md.
--
-- The database's owner may have made anything of the objects that are found, and may change them until they
-- are locked. So this calls and evaluates none of them. Objects are known by their OIDs. Tables are read when
-- they are locked, ordinary, of PostgreSQL's own types, and without indexes and constraints of expressions.
DO $to_module$
DECLARE
    space oid;         -- the schema of the tables
    owner regrole;
    installed jsonb;   -- what the owner says
    place text;        -- the schema of the functions
    routines oid[];
    views oid[];
    types oid[];
    triggers oid[];
    indexes text[];
    tables oid[];
    held oid;
    rights jsonb;
    fault text;
    relation text;
    list text;
    too_old boolean;
    one record;
    timeout_before text;
    path_before text;
BEGIN
    path_before := pg_catalog.current_setting('search_path');
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    SELECT n.oid, n.nspowner, split_part(p.prosrc, '$json$', 2)::jsonb INTO space, owner, installed
      FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'installed' AND p.pronargs = 0
     WHERE n.nspname = 'idempotency';
    SELECT quote_ident(n.nspname) INTO place FROM pg_namespace n WHERE quote_ident(n.nspname) = installed ->> 'schema';
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
    routines := ARRAY(SELECT oid FROM pg_proc WHERE installed -> 'routines' ? oid::regprocedure::text OR pronamespace = space AND proname = 'installed');
    views := ARRAY(SELECT oid FROM pg_class WHERE relkind = 'v' AND relnamespace = space AND installed -> 'views' ? oid::regclass::text);
    types := ARRAY(SELECT oid FROM pg_type WHERE typtype = 'c' AND typowner = owner AND installed -> 'types' ? oid::regtype::text);
    triggers := ARRAY(SELECT t.oid FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
                       WHERE c.relnamespace = space AND installed -> 'triggers' ? format('%I ON %s', t.tgname, t.tgrelid::regclass));
    -- From here on the owner can't give the name to another schema.
    ALTER SCHEMA idempotency RENAME TO idempotency_before;
    -- This waits for each transaction that has called a function, and later calls wait for this. Calls lock
    -- tables in orders of their own. So this waits for one table without limit, and for the others less
    -- long than a deadlock takes to be found.
    tables := ARRAY(SELECT oid FROM pg_class WHERE relnamespace = space AND relkind = 'r' ORDER BY relname <> 'record');
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
    fault := (SELECT string_agg(o.what, ', ') FROM (
        SELECT 'no schema ' || space WHERE space IS DISTINCT FROM to_regnamespace('idempotency_before')
         UNION ALL
        SELECT 'no table idempotency.' || t FROM unnest('{record,policy,audit,audit_chain,attempt,seed,journal,removal}'::text[]) t
         WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = ANY (tables) AND relnamespace = space AND relname = t)
         UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, a.attrelid, a.attnum) FROM pg_attribute a LEFT JOIN pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = ANY (tables) AND NOT a.attisdropped AND (a.attgenerated <> '' OR t.typnamespace <> 'pg_catalog'::regnamespace)
         UNION ALL
        SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) || ' of ' || c.relowner::regrole FROM pg_class c
         WHERE c.relnamespace = space AND c.relowner <> owner
         UNION ALL
        SELECT pg_describe_object('pg_proc'::regclass, p.oid, 0) || ' of ' || p.proowner::regrole FROM pg_proc p
         WHERE (p.pronamespace = space OR p.oid = ANY (routines)) AND p.proowner <> owner
         UNION ALL
        SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0) FROM pg_trigger t
         WHERE t.tgrelid = ANY (tables) AND NOT t.tgisinternal AND t.oid <> ALL (triggers)
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
    rights := (SELECT jsonb_agg(to_jsonb(g)) FROM (
        SELECT 'ROUTINE' AS kind, p.proname AS name, '' AS columns, a.*
          FROM pg_proc p, aclexplode(p.proacl) a WHERE p.oid = ANY (routines)
         UNION ALL
        SELECT 'TABLE', c.relname, x.columns, a.*
          FROM pg_class c,
               LATERAL (SELECT '' AS columns, c.relacl AS acl UNION ALL
                        SELECT format('(%I)', attname), attacl FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped) x,
               aclexplode(x.acl) a
         WHERE c.relnamespace = space) g
     WHERE g.grantee NOT IN (0, owner, 'pg_monitor'::regrole, 'pg_read_all_data'::regrole));
    indexes := ARRAY(SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = ANY (tables));

    -- ---- its objects make way, except for the tables ----
    FOR one IN SELECT t.tgname, t.tgrelid::regclass AS rel FROM pg_trigger t WHERE t.tgrelid = ANY (tables) AND NOT t.tgisinternal LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.rel);
    END LOOP;
    FOR one IN SELECT c.conname, c.conrelid::regclass AS rel FROM pg_constraint c WHERE c.conrelid = ANY (tables) AND c.contype IN ('c', 'p', 'u', 'x') LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.rel, one.conname);
    END LOOP;
    FOR one IN SELECT i.indexrelid::regclass AS rel FROM pg_index i WHERE i.indrelid = ANY (tables) LOOP
        EXECUTE format('DROP INDEX %s', one.rel);
    END LOOP;
    EXECUTE (SELECT format('DROP VIEW %s', string_agg(v::regclass::text, ', ')) FROM unnest(views) v);
    EXECUTE (SELECT format('DROP ROUTINE %s', string_agg(r::regprocedure::text, ', ')) FROM unnest(routines) r);
    EXECUTE (SELECT format('DROP TYPE %s', string_agg(t::regtype::text, ', ')) FROM unnest(types) t);

    -- ---- rows ----
    -- A removed record leaves no trace in a table that is copied, so no older snapshot may remain.
    EXECUTE $q$SELECT EXISTS (SELECT FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend' AND a.backend_xmin IS NOT NULL
          AND (a.xact_start < clock_timestamp() - interval '1 hour'
               OR age(a.backend_xmin) >= (SELECT min(age(r.removed_in::xid)) FROM idempotency_before.removal r)))$q$ INTO too_old;
    IF too_old THEN
        RAISE EXCEPTION 'a transaction has a snapshot from before the last removal of a record'
            USING ERRCODE = '55006', HINT = 'Run this file again when it has ended.';
    END IF;
    EXECUTE format('CREATE EXTENSION idempotency SCHEMA %s', place);
    FOREACH relation IN ARRAY '{seed,policy,record,attempt,audit,audit_chain,journal}'::text[] LOOP
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO list FROM pg_attribute a
         WHERE a.attrelid = to_regclass('idempotency.' || relation) AND a.attnum > 0;
        fault := (SELECT string_agg('column ' || o.name || ' ' || o.type, ', ') FROM (
            SELECT attname, atttypid::regtype, attcollation FROM pg_attribute
             WHERE attrelid = to_regclass('idempotency_before.' || relation) AND attnum > 0 AND NOT attisdropped
               AND NOT (relation = 'record' AND attname IN ('written_in', 'open_claim', 'before'))
            EXCEPT
            SELECT attname, atttypid::regtype, attcollation FROM pg_attribute WHERE attrelid = to_regclass('idempotency.' || relation)) o (name, type));
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION 'the table idempotency.% has been changed', relation
                USING ERRCODE = '55000', DETAIL = fault, HINT = 'Undo these changes first.';
        END IF;
        IF relation IN ('journal', 'audit_chain') THEN EXECUTE format('DELETE FROM idempotency.%I', relation); END IF;
        EXECUTE format('INSERT INTO idempotency.%I (%s) SELECT %2$s FROM idempotency_before.%1$I', relation, list);
    END LOOP;
    fault := (SELECT string_agg('index ' || i, ', ') FROM unnest(indexes) i WHERE to_regclass(format('idempotency.%I', i)) IS NULL AND i NOT IN ('removal_pkey', 'setting_pkey'));
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'the installation has been changed' USING ERRCODE = '55000', DETAIL = fault, HINT = 'Undo these changes first.';
    END IF;
    -- The owner of this edition may not see when a session of another role began.
    UPDATE idempotency.record r
       SET backend_start = coalesce((SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = r.backend_pid), '-infinity')
     WHERE r.backend_pid IS NOT NULL AND r.backend_start IS NULL;
    EXECUTE (SELECT format('DROP TABLE %s', string_agg(t::regclass::text, ', ')) FROM unnest(tables) t);
    DROP SCHEMA idempotency_before;

    -- ---- rights ----
    FOR one IN
        SELECT r.privilege_type, r.columns, r.kind, r.grantee::regrole AS role, CASE WHEN r.is_grantable THEN 'WITH GRANT OPTION' END AS option,
               CASE r.kind WHEN 'TABLE' THEN m.objid::regclass::text ELSE m.objid::regprocedure::text END AS target
          FROM jsonb_to_recordset(rights) r (kind text, name text, columns text, grantee oid, privilege_type text, is_grantable boolean)
          JOIN pg_depend m ON m.deptype = 'e' AND m.refclassid = 'pg_extension'::regclass
                          AND m.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')
          LEFT JOIN pg_proc p ON r.kind = 'ROUTINE' AND m.classid = 'pg_proc'::regclass AND p.oid = m.objid
          LEFT JOIN pg_class c ON r.kind = 'TABLE' AND m.classid = 'pg_class'::regclass AND c.oid = m.objid
         WHERE coalesce(p.proname, c.relname) = r.name
           AND (r.columns = '' OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND format('(%I)', a.attname) = r.columns)) LOOP
        EXECUTE format('GRANT %s %s ON %s %s TO %s %s', one.privilege_type, one.columns, one.kind, one.target, one.role, one.option);
        IF one.kind = 'TABLE' THEN EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', one.role); END IF;
    END LOOP;
    IF owner <> current_user::regrole THEN
        EXECUTE format('SELECT %s.idem_grant(%L::regrole, true, %L::text, true, true)', place, owner, 'owned the edition without C');
        EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', owner);
        -- It reads all views, as it did, by the functions that pg_monitor has.
        EXECUTE (SELECT format('GRANT SELECT ON %s TO %s', string_agg(c.oid::regclass::text, ', '), owner) FROM pg_class c
                  WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relkind = 'v');
        EXECUTE (SELECT format('GRANT EXECUTE ON ROUTINE %s TO %s', string_agg(p.oid::regprocedure::text, ', '), owner) FROM pg_proc p, aclexplode(p.proacl) a
                  WHERE p.pronamespace = 'idempotency'::regnamespace AND a.grantee = 'pg_monitor'::regrole);
    END IF;
    PERFORM set_config('search_path', path_before, true);
    RAISE NOTICE 'idempotency is the module now; % is its operator, administrator and worker', owner;
END
$to_module$;
