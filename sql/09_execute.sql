-- Promise: idem_execute runs the operation exactly once, as its caller. It stores the result or the final
-- failure. A temporary failure leaves nothing behind.
\a\pset footer off

-- The test's operation records its caller.
CREATE TABLE test.effect (what text, who name DEFAULT current_user);
CREATE FUNCTION test.charge(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test.effect VALUES ('charge ' || (request ->> 'amount'));
    RETURN jsonb_build_object('charged', request -> 'amount');
END $$;
SELECT test.seen(c) FROM idem_execute('pay', 'test.charge(jsonb)', '{"amount": 5}', 'execute', 'shop',
                                      holder => 'worker-1') c;
SELECT test.seen(c) FROM idem_execute('pay', 'test.charge(jsonb)', '{"amount": 5}', 'execute', 'shop') c;
SELECT test.seen(c) FROM idem_execute('pay', 'test.charge(jsonb)', '{"amount": 6}', 'execute', 'shop') c;
SELECT test.seen(c) FROM idem_begin('pay', '{"amount": 5}', 'execute', 'shop') c;
SELECT what FROM test.effect;
-- Twice in one transaction, then rolled back: as if never asked.
BEGIN;
SELECT outcome FROM idem_execute('undone', 'test.charge(jsonb)', '{"amount": 7}', 'execute');
SELECT outcome FROM idem_execute('undone', 'test.charge(jsonb)', '{"amount": 7}', 'execute');
ROLLBACK;
SELECT what FROM test.effect;
SELECT outcome, attempt, expires_at - created_at AS ttl
  FROM idem_execute('undone', 'test.charge(jsonb)', '{"amount": 7}', 'execute', ttl => '2 hours');

-- An operation may answer with status, headers and body of its own.
CREATE FUNCTION test.create_order(request jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(201, '{"Location": "/orders/1", "Set-Cookie": "s=1"}', 'made: ' || (request ->> 'item')) $$;
CREATE FUNCTION test.picture(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(200, NULL, '\x00ff'::bytea) $$;
CREATE FUNCTION test.document(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(200, NULL, '{"b": 1, "a": 2}'::jsonb) $$;
CREATE FUNCTION test.bare(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT ROW(NULL, NULL, NULL)::idem_response $$;
SELECT test.seen(c) FROM idem_execute('order', 'test.create_order(jsonb)', '{"item": "tea"}', 'execute') c;
SELECT test.seen(c) FROM idem_execute('order', 'test.create_order(jsonb)', '{"item": "tea"}', 'execute') c;
SELECT test.seen(c) FROM idem_execute('picture', 'test.picture(jsonb)', '{}', 'execute') c;
SELECT test.seen(c) FROM idem_execute('document', 'test.document(jsonb)', '{}', 'execute') c;
SELECT test.seen(c) FROM idem_execute('bare', 'test.bare(jsonb)', '{}', 'execute') c;

-- No result is a result.
CREATE FUNCTION test.nothing(jsonb) RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO test.effect VALUES ('nothing'); RETURN NULL; END $$;
TRUNCATE test.effect;
SELECT test.seen(c) FROM idem_execute('nothing', 'test.nothing(jsonb)', NULL, 'execute') c;
SELECT test.seen(c) FROM idem_execute('nothing', 'test.nothing(jsonb)', NULL, 'execute') c;
SELECT what FROM test.effect;

-- A failure that is the request's own fault is the final answer: its effects are rolled back, nothing
-- else is.
CREATE FUNCTION test.fail_with(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test.effect VALUES ('must not stay');
    RAISE EXCEPTION 'failed with %', request ->> 'code' USING ERRCODE = request ->> 'code', DETAIL = 'not stored';
END $$;
TRUNCATE test.effect;
BEGIN;
INSERT INTO test.effect VALUES ('before');
SELECT test.seen(c) FROM idem_execute('declined', 'test.fail_with(jsonb)', '{"code": "P0001"}', 'execute') c;
INSERT INTO test.effect VALUES ('after');
COMMIT;
SELECT test.seen(c) FROM idem_execute('declined', 'test.fail_with(jsonb)', '{"code": "P0001"}', 'execute') c;
SELECT what FROM test.effect;
SELECT code, outcome, status, error
  FROM unnest('{23505,22012,99999}'::text[]) code,
       idem_execute('final ' || code, 'test.fail_with(jsonb)', jsonb_build_object('code', code), 'execute');
-- A response that could never be sent is not stored as an answer: it is raised.
CREATE FUNCTION test.bad_status(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(999, NULL, 'made') $$;
CREATE FUNCTION test.bad_headers(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(200, '{"X-Number": 1}', 'made') $$;
SELECT * FROM refused($$
SELECT status, error FROM idem_execute('bad status', 'test.bad_status(jsonb)', '{}', 'execute');
SELECT status, error FROM idem_execute('bad headers', 'test.bad_headers(jsonb)', '{}', 'execute');
$$);
SELECT count(*) AS records FROM idempotency.records WHERE scope = 'execute' AND key LIKE 'bad %';

-- Any other failure is raised again, with everything said, and the key is free.
TRUNCATE test.effect;
SELECT * FROM refused($$
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "40001"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "08006"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "53100"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "55P03"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "57014"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "58030"}', 'execute');
SELECT outcome FROM idem_execute('transient', 'test.fail_with(jsonb)', '{"code": "XX000"}', 'execute');
$$);
SELECT count(*) AS effects FROM test.effect;
SELECT count(*) AS records FROM idempotency.records WHERE (scope, key) = ('execute', 'transient');
SELECT outcome, attempt FROM idem_execute('transient', 'test.charge(jsonb)', '{"amount": 8}', 'execute');
-- Also when it is caught around the call.
DO $$
BEGIN
    PERFORM idem_execute('caught', 'test.fail_with(jsonb)', '{"code": "40001"}', 'execute');
EXCEPTION WHEN serialization_failure THEN
    RAISE NOTICE 'then: %', (idem_execute('caught', 'test.charge(jsonb)', '{"amount": 9}', 'execute')).outcome;
END $$;

-- An operation may use savepoints, and other keys, of its own.
CREATE FUNCTION test.nested(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    inner_claim idem_claim;
BEGIN
    BEGIN
        RAISE EXCEPTION 'caught inside';
    EXCEPTION WHEN raise_exception THEN
        inner_claim := idem_execute('inner', 'test.charge(jsonb)', request, 'execute');
    END;
    RETURN to_jsonb(inner_claim.outcome);
END $$;
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('outer', 'test.nested(jsonb)', '{"amount": 10}', 'execute');
SELECT outcome FROM idem_execute('inner', 'test.charge(jsonb)', '{"amount": 10}', 'execute');
-- Its own key is in progress while it runs, so it can't run itself.
CREATE FUNCTION test.itself(request jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb(outcome) FROM idem_execute('itself', 'test.itself(jsonb)', request, 'execute') $$;
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('itself', 'test.itself(jsonb)', '{}', 'execute');

-- It runs as the caller, with the caller's search_path, unless it says otherwise itself.
CREATE ROLE regress_idem_runner;
SELECT idem_grant('regress_idem_runner');
GRANT USAGE ON SCHEMA test TO regress_idem_runner;
GRANT INSERT ON test.effect TO regress_idem_runner;
CREATE FUNCTION test.who(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT jsonb_build_object('user', current_user, 'path', current_setting('search_path')) $$;
CREATE FUNCTION test.who_definer(jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = test AS
    $$ SELECT jsonb_build_object('caller', current_user = session_user, 'path', current_setting('search_path')) $$;
CREATE FUNCTION test.secret(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION test.peek(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb(count(*)) FROM idempotency.record $$;
REVOKE EXECUTE ON FUNCTION test.secret(jsonb) FROM PUBLIC;
TRUNCATE test.effect;
SET ROLE regress_idem_runner;
SET search_path = public, test;
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('who', 'test.who(jsonb)', '{}', 'execute');
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('who definer', 'test.who_definer(jsonb)', '{}', 'execute');
SELECT outcome FROM idem_execute('as runner', 'test.charge(jsonb)', '{"amount": 11}', 'execute');
-- The owner's rights are not lent to it.
\set VERBOSITY sqlstate
SELECT status, error FROM idem_execute('peek', 'test.peek(jsonb)', '{}', 'execute');
\set VERBOSITY default
-- No right to call it.
SELECT outcome FROM idem_execute('secret', 'test.secret(jsonb)', '{}', 'execute');
\echo :SQLSTATE
-- A number instead of a name gets round no schema either.
RESET ROLE;
SELECT 'test.who(jsonb)'::regprocedure::oid AS who \gset
REVOKE USAGE ON SCHEMA test FROM regress_idem_runner;
SET ROLE regress_idem_runner;
SELECT outcome FROM idem_execute('by number', :who::oid::regprocedure, '{}', 'execute');
\echo :SQLSTATE
SELECT current_user, current_setting('search_path') AS search_path;
RESET search_path;
RESET ROLE;
SELECT what, who FROM test.effect;
SELECT count(*) FROM idempotency.records WHERE scope = 'execute' AND key IN ('secret', 'by number');

-- Other functions are refused before anything is claimed.
CREATE FUNCTION test.two(jsonb, jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION test.json_argument(json) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION test.text_result(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT '1' $$;
CREATE FUNCTION test.many(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE PROCEDURE test.procedure(jsonb) LANGUAGE sql AS $$ SELECT 1 $$;
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT outcome FROM idem_execute('wrong', 'test.two(jsonb, jsonb)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'test.json_argument(json)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'test.text_result(jsonb)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'test.many(jsonb)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'test.procedure(jsonb)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'jsonb_agg(anyelement)', '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', NULL, '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 4294967295::oid::regprocedure, '{}', 'execute');
SELECT outcome FROM idem_execute('wrong', 'test.missing(jsonb)', '{}', 'execute');
$$);
SELECT test.stored() = :'before' AS unchanged;

-- A result over the limit is not kept, so the operation has not happened either.
SELECT idem_policy_set('execute-small', max_body_bytes => 5);
TRUNCATE test.effect;
SELECT outcome FROM idem_execute('large', 'test.charge(jsonb)', '{"amount": 12}', 'execute-small');
\echo :SQLSTATE
SELECT count(*) FROM test.effect;
SELECT idem_policy_set('execute-small', max_body_bytes => 5, on_large_body => 'omit', replace => true);
SELECT test.seen(c) FROM idem_execute('large', 'test.charge(jsonb)', '{"amount": 12}', 'execute-small') c;
SELECT idem_policy_drop('execute-small');

-- Without a key one is made up.
SELECT outcome, key <> '' AS generated FROM idem_execute(NULL, 'test.charge(jsonb)', '{"amount": 13}', 'execute');

SELECT idem_revoke('regress_idem_runner');
REVOKE ALL ON test.effect FROM regress_idem_runner;
DROP ROLE regress_idem_runner;
DROP TABLE test.effect;
DROP FUNCTION test.charge, test.create_order, test.picture, test.document, test.bare, test.nothing,
    test.fail_with, test.bad_status, test.bad_headers, test.nested, test.itself, test.who,
    test.who_definer, test.secret, test.peek, test.two, test.json_argument, test.text_result, test.many;
DROP PROCEDURE test.procedure;
