DO $install$
DECLARE
    version constant text := '/*VERSION*/';
    digest constant text := '/*DIGEST*/';
    -- For tables of older versions, in pairs: the version that needs a statement, and the statement.
    steps constant text[] := '{}';
    -- Before each statement stands its kind, and the name of what it makes.
    script text := $script$
/*SCRIPT*/
$script$;
    updater constant text := $updater$
/*UPDATER*/
$updater$;
    settings_before constant text[] := ARRAY[current_setting('search_path'), current_setting('check_function_bodies'),
                                             current_setting('client_min_messages')];
    place text := quote_ident(current_schema());
    installed jsonb;
    in_the_way text;
    up_to_date boolean := false;
    one regprocedure;
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'idempotency') THEN
        RAISE NOTICE 'the extension idempotency is installed, nothing is changed';
        RETURN;
    ELSIF current_setting('server_version_num')::integer < 150000 OR getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'idempotency needs PostgreSQL 15 or later, and a database in UTF8' USING ERRCODE = '0A000';
    ELSIF to_regprocedure('idempotency.installed()') IS NOT NULL THEN
        -- First: what the owner has made is not called by another role.
        IF (SELECT nspowner FROM pg_namespace WHERE nspname = 'idempotency') <> current_user::regrole THEN
            RAISE EXCEPTION 'must be owner of schema idempotency' USING ERRCODE = '42501', HINT = format('Run SET ROLE %s first.',
                (SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'idempotency'));
        END IF;
        installed := idempotency.installed();
        place := installed ->> 'schema';
        -- A dump without rights has lost that PUBLIC may not call this function.
        up_to_date := installed ->> 'version' = version AND installed ->> 'digest' = digest
                      AND NOT has_function_privilege('public', 'idempotency.installed()', 'EXECUTE');
        IF string_to_array(installed ->> 'version', '.')::integer[] > string_to_array(version, '.')::integer[] THEN
            RAISE EXCEPTION 'idempotency % is installed, and this file is of version %', installed ->> 'version', version
                USING ERRCODE = '0A000', HINT = 'Run the file of that version, or of a newer one.';
        END IF;
    ELSIF to_regnamespace('idempotency') IS NOT NULL THEN
        RAISE EXCEPTION 'schema "idempotency" already exists'
            USING ERRCODE = '42P06', DETAIL = 'This file has not made it.', HINT = 'Rename or drop it.';
    ELSIF place IS NULL THEN
        RAISE EXCEPTION 'no schema of search_path exists' USING ERRCODE = '3F000';
    END IF;

    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true), set_config('check_function_bodies', 'off', true),
            set_config('client_min_messages', 'warning', true);
    script := replace(script, '@extschema@', place);
    in_the_way := (SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                    WHERE strpos(script, format(E'\n--; routine %I.%I\n', n.nspname, p.proname)) > 0
                      AND NOT coalesce(installed -> 'routines' ? p.oid::regprocedure::text, false));
    IF in_the_way IS NOT NULL THEN
        RAISE EXCEPTION 'functions with the names of functions of idempotency exist'
            USING ERRCODE = '42723', DETAIL = in_the_way, HINT = 'Rename or drop them.';
    END IF;
    IF installed IS NULL THEN EXECUTE script; END IF;
    EXECUTE updater;
    IF up_to_date THEN
        PERFORM idempotency.updating_missing_rows(s.name, s.text) FROM idempotency.updating_statements(script) s WHERE s.kind = 'rows';
    ELSE
        IF installed IS NULL THEN
            PERFORM idempotency.updating_close(script, installed);
        ELSE
            PERFORM idempotency.updating(script, installed, steps);
        END IF;
        PERFORM idempotency.updating_write_down(script, version, digest, place);
    END IF;
    FOR one IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'idempotency'::regnamespace AND p.proname LIKE 'updating%' LOOP
        EXECUTE format('DROP FUNCTION %s', one);
    END LOOP;
    PERFORM set_config('search_path', settings_before[1], true), set_config('check_function_bodies', settings_before[2], true),
            set_config('client_min_messages', settings_before[3], true);
    IF up_to_date THEN
        RAISE NOTICE 'idempotency % is up to date', version;
    ELSIF installed IS NOT NULL THEN
        RAISE NOTICE 'idempotency % was updated to %', installed ->> 'version', version;
    END IF;
END
$install$;
