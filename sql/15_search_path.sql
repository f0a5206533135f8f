-- Promise: objects of other schemas never run, in any order of the search_path: not in a call, and not
-- while the extension is created, granted, revoked or dropped.
\a\pset footer off
-- Versions differ in the context of errors of an extension script.
\set SHOW_CONTEXT never
SET client_min_messages = warning;

-- A schema full of traps, named like objects of pg_catalog and ours. Each writes down that it ran.
CREATE SCHEMA hostile;
CREATE TABLE hostile.log (what text);
DO $$
DECLARE
    body text := 'LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO hostile.log VALUES (%L); RETURN NULL; END $f$';
    name text;
    symbol text;
BEGIN
    FOREACH name IN ARRAY '{now(),clock_timestamp(),gen_random_uuid(),getdatabaseencoding(),length(text),lower(text),
        "convert_to(text,name)",quote_ident(text),current_setting(text),sha256(bytea),jsonb_strip_nulls(jsonb),
        text(regprocedure),int8_numeric(bigint),uuid_out(uuid),policy_changed()}'::text[]
    LOOP
        EXECUTE format('CREATE FUNCTION hostile.%s RETURNS text ' || body, name, name);
    END LOOP;
    FOREACH name IN ARRAY '{text,name,bigint,integer,boolean,timestamptz,interval,"\"char\"",bytea,jsonb,oid,regclass}'::text[]
    LOOP
        EXECUTE format('CREATE FUNCTION hostile.trap(%s, %s) RETURNS boolean ' || body, name, name, 'operator of ' || name);
        FOREACH symbol IN ARRAY '{=,<>,<,<=,>,>=,||,+,-}'::text[]
        LOOP
            EXECUTE format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.trap, LEFTARG = %s, RIGHTARG = %s)', symbol, name, name);
        END LOOP;
    END LOOP;
    FOREACH name IN ARRAY '{text,name,jsonb,bytea,uuid,timestamptz,regprocedure,regrole,idem_claim,idem_response}'::text[]
    LOOP
        EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.int4', name);
    END LOOP;
    FOREACH name IN ARRAY '{record,records,policy,audit,pg_class,pg_proc,pg_depend,pg_extension,pg_namespace,pg_authid}'::text[]
    LOOP
        EXECUTE format('CREATE TABLE hostile.%I (scope int, principal int, key int, token int)', name);
        EXECUTE format('CREATE TEMP TABLE %I (scope int, principal int, key int, token int)', name);
    END LOOP;
END $$;
CREATE ROLE regress_idem_victim;
GRANT USAGE ON SCHEMA hostile TO regress_idem_victim;
GRANT INSERT ON hostile.log TO regress_idem_victim;
CREATE FUNCTION test.operation(pg_catalog.jsonb) RETURNS pg_catalog.jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION test.answer(pg_catalog.jsonb) RETURNS idem_response LANGUAGE sql
    RETURN idem_response(201, '{"X": "y"}', 'made'::text);
GRANT USAGE ON SCHEMA test TO regress_idem_victim;

-- pg_catalog comes last, so every unqualified name is a trap. They do work:
SET search_path = hostile, pg_temp, public, pg_catalog;
SELECT now(), 1 = 1, NULL::text;
SELECT what FROM hostile.log;
TRUNCATE hostile.log;

-- Every function, as a role that depends on the owner's rights.
SELECT idem_grant('regress_idem_victim', operator => true, administrator => true);
SET ROLE regress_idem_victim;
SELECT idem_policy_set('path*', ttl => '1 hour', max_attempts => 3, retry_base => '0', exclude_fields => '{ts}',
                       drop_headers => '{Date}', allowed_role => 'regress_idem_victim', on_lease_expiry => 'takeover');
BEGIN;
SELECT test.seen(c) FROM idem_begin('a', '{"amount": 5, "ts": 1}', 'path') c;
SELECT idem_complete('a', 201, 'made', '{"Date": "today"}', 'path');
SELECT test.seen(c) FROM idem_begin('a', '{"amount": 5, "ts": 2}', 'path') c;
COMMIT;
SELECT test.seen(c) FROM idem_begin('a', '{"amount": 5}', 'path') c;
SELECT outcome FROM idem_begin('a', '{"amount": 6}', 'path');
SELECT token FROM idem_begin('b', scope => 'path', hold => true, holder => 'me') \gset
SELECT outcome FROM idem_begin('b', scope => 'path', wait => '10 ms');
SELECT idem_extend('b', :token, '1 hour', 'path') IS NOT NULL AS prolonged;
SELECT idem_checkpoint('b', 'here', '{}', 'path', token => :token) IS NOT NULL AS prolonged;
SELECT idem_fail('b', 'later', true, scope => 'path', token => :token);
SELECT token FROM idem_begin('b', scope => 'path') \gset
SELECT idem_complete('b', 200, '\x00'::pg_catalog.bytea, scope => 'path', token => :token);
SELECT token FROM idem_begin('c', scope => 'path') \gset
SELECT idem_complete('c', 200, '{}'::pg_catalog.jsonb, scope => 'path', token => :token + 1);
\echo :SQLSTATE
SELECT idem_release('c', 'path', token => :token);
SELECT outcome, key IS NOT NULL AS generated FROM idem_begin(NULL, scope => 'path');
SELECT idem_once('d', 'path'), idem_once('d', 'path');
SELECT test.seen(c) FROM idem_execute('e', 'test.operation(pg_catalog.jsonb)', '{"a": 1}', 'path') c;
SELECT test.seen(c) FROM idem_execute('f', 'test.answer(pg_catalog.jsonb)', '{"a": 1}', 'path') c;
SELECT test.seen(c) FROM idem_get('b', 'path') c;
SELECT outcome FROM idem_begin('g', scope => 'path');
SELECT idem_resolve('g', 'fail', 'path', error => 'given up');
SELECT idem_forget('g', 'path', reason => 'by hand');
SELECT outcome FROM pg_catalog.unnest('{k,l}'::pg_catalog.text[]) k, idem_begin(k, scope => 'path', principal => 'p', lease => '1 us');
SELECT idem_resolve_idle('k', 'release', 'path', 'p', status => 'in_progress');
CALL idem_resolve_all('fail', 'all of them', 'path*', 'p', 'in_progress', '0', batch_size => 1);
SELECT idem_erase('k', 'path', 'p');
CALL idem_forget_principal('p', 'asked for');
SELECT idem_await_claims('p');
SELECT idem_erase_decisions('p');
SELECT idem_cleanup() IS NOT NULL AS cleaned;
SELECT idem_policy_drop('path*', 'a test');
SELECT idem_key('a', 'b'), idem_event_id('e', 'r', '1970-01-01 00:00:00+00'), idem_parse_key('"k"'), idem_http_status('expired'),
       idem_backoff(2, '1 s', '1 min');
SELECT pg_catalog.encode(idem_fingerprint('{"a": 1}', 'GET', '/', '{b}'), 'hex') AS fingerprint;
SELECT idem_problem(c) -> 'status' AS status FROM idem_begin('a', '{"amount": 6}', 'path') c;
SELECT idem_response(200, NULL, 'x'::pg_catalog.text), idem_response(200, NULL, '{}'::pg_catalog.jsonb),
       idem_response(200, NULL, '\x00'::pg_catalog.bytea);
-- A claim that is written at the end of the transaction, and a policy that is read again.
BEGIN;
SELECT outcome FROM idem_begin('h', scope => 'path');
COMMIT;
-- The caller's path is given back each time, also after an error.
SHOW search_path;
RESET ROLE;
-- Code inside, here a trigger, runs as the owner with a path of our own.
CREATE FUNCTION test.look_around() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING 'as owner: %, search_path: %',
        (SELECT c.relowner OPERATOR(pg_catalog.=) u.oid FROM pg_catalog.pg_class c, pg_catalog.pg_roles u
          WHERE c.oid OPERATOR(pg_catalog.=) TG_RELID AND u.rolname OPERATOR(pg_catalog.=) current_user),
        pg_catalog.current_setting('search_path');
    RETURN NEW;
END $$;
CREATE TRIGGER look_around BEFORE INSERT ON idempotency.record FOR EACH ROW EXECUTE FUNCTION test.look_around();
SET ROLE regress_idem_victim;
SELECT idem_once('i', 'path');
BEGIN;
SELECT outcome FROM idem_begin('j', scope => 'path');
COMMIT;
RESET ROLE;
DROP TRIGGER look_around ON idempotency.record;
DROP FUNCTION test.look_around;
SELECT idem_revoke('regress_idem_victim');
SELECT what FROM hostile.log;

-- Dropped and created again under that path, in another schema, in the same session.
DROP FUNCTION test.answer;
DROP EXTENSION idempotency;
\set VERBOSITY sqlstate
SELECT outcome FROM idem_begin('k');
\set VERBOSITY default
CREATE SCHEMA second;
CREATE EXTENSION idempotency SCHEMA second;
SELECT what FROM hostile.log;
SELECT outcome FROM second.idem_begin('a', scope => 'path');
SELECT second.idem_grant('regress_idem_victim');
SET ROLE regress_idem_victim;
SELECT outcome FROM second.idem_begin('a', scope => 'path');
\echo :SQLSTATE
RESET ROLE;
GRANT USAGE ON SCHEMA second TO regress_idem_victim;
SET ROLE regress_idem_victim;
SELECT outcome FROM second.idem_begin('a', scope => 'path');
SELECT test.seen(c) FROM second.idem_execute('e', 'test.operation(pg_catalog.jsonb)', '{"a": 1}', 'path') c;
RESET ROLE;
SELECT second.idem_revoke('regress_idem_victim');
-- The functions went to that schema, the tables did not.
SELECT n.nspname, c.relkind, pg_catalog.count(*)
  FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON d.refobjid OPERATOR(pg_catalog.=) e.oid
  JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) d.objid
  JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE d.deptype OPERATOR(pg_catalog.=) 'e' AND e.extname OPERATOR(pg_catalog.=) 'idempotency'
 GROUP BY 1, 2 ORDER BY 1 USING OPERATOR(pg_catalog.<), 2 USING OPERATOR(pg_catalog.<);
ALTER EXTENSION idempotency SET SCHEMA public;
\echo :SQLSTATE
DROP EXTENSION idempotency;

-- Even into the hostile schema itself. But nothing that is there already is taken over.
DROP DOMAIN hostile.idem_claim;
CREATE EXTENSION idempotency SCHEMA hostile;
\echo :SQLSTATE
DROP DOMAIN hostile.idem_response;
CREATE FUNCTION hostile.idem_forget(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.bool
    LANGUAGE sql RETURN true;
CREATE EXTENSION idempotency SCHEMA hostile;
\echo :SQLSTATE
DROP FUNCTION hostile.idem_forget;
-- Nor is its comment, or its rights, given to another function of the same name.
CREATE FUNCTION hostile.idem_forget() RETURNS pg_catalog.bool LANGUAGE sql RETURN true;
CREATE EXTENSION idempotency SCHEMA hostile;
\echo :SQLSTATE
DROP FUNCTION hostile.idem_forget;
CREATE SCHEMA idempotency;
CREATE EXTENSION idempotency SCHEMA hostile;
\echo :SQLSTATE
DROP SCHEMA idempotency;
CREATE EXTENSION idempotency SCHEMA hostile;
SELECT outcome FROM hostile.idem_begin('a', '{"amount": 5}', 'path');
SELECT hostile.idem_once('b', 'path'), hostile.idem_once('b', 'path');
SELECT what FROM hostile.log;
DROP EXTENSION idempotency;

-- Without the extension there is nothing left, and with it everything is as before.
RESET search_path;
DISCARD TEMP;
SELECT count(*) AS schemas FROM pg_namespace WHERE nspname = 'idempotency';
SELECT count(*) AS left_behind FROM pg_proc WHERE proname LIKE 'idem\_%';
DROP SCHEMA second, hostile CASCADE;
DROP FUNCTION test.operation;
REVOKE USAGE ON SCHEMA test FROM regress_idem_victim;
DROP ROLE regress_idem_victim;
CREATE EXTENSION idempotency;
SELECT idem_once('again', 'path'), idem_once('again', 'path');
SELECT count(*) FROM idempotency.records;
