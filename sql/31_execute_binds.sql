-- Promise: idem_execute stores only the request's own faults as final. It binds a key to its operation.
-- No session can end the key while the operation runs.
\a\pset footer off

CREATE TABLE test.effect (what text);
CREATE FUNCTION test.fail_with(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test.effect VALUES ('must not stay');
    RAISE EXCEPTION 'failed' USING ERRCODE = request ->> 'code';
END $$;
-- The result of a failure: stored as final, or raised again without a record.
CREATE FUNCTION test.fate(code text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN 'kept: ' || (idem_execute('fate ' || code, 'test.fail_with(jsonb)', jsonb_build_object('code', code), 'fate')).error;
EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
    RETURN 'raised: ' || SQLSTATE;
END $$;

-- The request's fault: its data, what they violate, what the operation says about them, and classes
-- that nobody but the operation's author has given a meaning.
SELECT code, test.fate(code) FROM unnest('{22012,22P02,22023,23502,23505,23514,23P01,45000,P0001,60001,99999,AB123,US001,I0001,PT402,ZZ000}'::text[]) code;
-- Not its fault: the server's surroundings, a broken deploy, a lost right, a fault in the operation.
-- Once that is mended the same request succeeds.
SELECT code, test.fate(code)
  FROM unnest('{01000,02000,03000,08006,09000,0A000,20000,21000,24000,25001,25006,25P02,25P03,26000,28000,2BP01,34000,38000,39000,3D000,
                3F000,40001,40P01,42501,42601,42703,42804,42883,42P01,42P13,44000,53100,53200,54000,54001,55000,55P03,57014,
                57P01,58030,72000,F0000,HV000,HV00N,P0000,P0002,P0003,P0004,XX000,XX001,ID404,ID409}'::text[]) code;
SELECT count(*) AS effects FROM test.effect;
SELECT count(*) AS kept FROM idempotency.records WHERE scope = 'fate';
SELECT DISTINCT status FROM idempotency.records WHERE scope = 'fate';
-- A deploy that breaks the operation is mended, and the request goes through.
CREATE TABLE test.price (item text, cents int);
INSERT INTO test.price VALUES ('tea', 300);
CREATE FUNCTION test.buy(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT to_jsonb(cents) FROM test.price WHERE item = request ->> 'item');
END $$;
ALTER TABLE test.price RENAME TO old_price;
\set VERBOSITY sqlstate
SELECT outcome FROM idem_execute('buy', 'test.buy(jsonb)', '{"item": "tea"}', 'deploy');
\set VERBOSITY default
ALTER TABLE test.old_price RENAME TO price;
SELECT outcome, attempt, convert_from(body, 'UTF8') AS body FROM idem_execute('buy', 'test.buy(jsonb)', '{"item": "tea"}', 'deploy');

-- The key belongs to its operation.
CREATE FUNCTION test.charge(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"charged"'::jsonb $$;
CREATE FUNCTION test.refund(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"refunded"'::jsonb $$;
SELECT test.seen(c) FROM idem_execute('p1', 'test.charge(jsonb)', '{"amount": 5}', 'bound') c;
SELECT test.seen(c) FROM idem_execute('p1', 'test.refund(jsonb)', '{"amount": 5}', 'bound') c;
SELECT outcome FROM idem_execute('p1', 'test.charge(jsonb)', '{"amount": 5}', 'bound') c;
SELECT operation FROM idempotency.records WHERE (scope, key) = ('bound', 'p1');
-- Also where the caller has made the fingerprint, and where there is no request at all.
SELECT outcome FROM idem_execute('p2', 'test.charge(jsonb)', NULL, 'bound', fingerprint => '\x01') c;
SELECT outcome FROM idem_execute('p2', 'test.refund(jsonb)', NULL, 'bound', fingerprint => '\x01') c;
SELECT outcome FROM idem_execute('p2', 'test.charge(jsonb)', NULL, 'bound', fingerprint => '\x01') c;
SELECT outcome FROM idem_execute('p3', 'test.charge(jsonb)', NULL, 'bound') c;
SELECT outcome FROM idem_execute('p3', 'test.refund(jsonb)', NULL, 'bound') c;
SELECT outcome FROM idem_execute('p3', 'test.charge(jsonb)', '{"amount": 5}', 'bound') c;
-- In the transaction that has it open as well.
CREATE FUNCTION test.meets(request jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_array((idem_execute('p4', 'test.meets(jsonb)', request, 'bound')).outcome,
                             (idem_execute('p4', 'test.charge(jsonb)', request, 'bound')).outcome) $$;
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('p4', 'test.meets(jsonb)', '{"amount": 5}', 'bound');
-- A function that was made anew, or restored, is the same operation; how a session writes its name
-- does not matter.
DROP FUNCTION test.charge;
CREATE FUNCTION test.charge(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"charged anew"'::jsonb $$;
SET search_path = test, public;
SET quote_all_identifiers = on;
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_execute('p1', 'charge(jsonb)', '{"amount": 5}', 'bound') c;
RESET quote_all_identifiers;
RESET search_path;
-- Names that need quotes can't be taken for others.
CREATE SCHEMA "test.a";
CREATE FUNCTION "test.a".b(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION test."a.b"(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '2'::jsonb $$;
CREATE FUNCTION test."Q""q"(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '2'::jsonb $$;
SELECT outcome FROM idem_execute('p5', '"test.a".b(jsonb)', '{}', 'bound');
SELECT outcome FROM idem_execute('p5', 'test."a.b"(jsonb)', '{}', 'bound');
SELECT outcome FROM idem_execute('p6', 'test."a.b"(jsonb)', '{}', 'bound');
SELECT outcome FROM idem_execute('p7', 'test."Q""q"(jsonb)', '{}', 'bound');
SELECT key, operation, to_regprocedure(operation) IS NOT NULL AS found
  FROM idempotency.records WHERE scope = 'bound' AND key >= 'p5' ORDER BY key COLLATE "C";
-- idem_begin names no operation, so none is compared: only the request counts, in both directions.
SELECT outcome FROM idem_begin('p1', '{"amount": 5}', 'bound');
SELECT outcome FROM idem_begin('p1', '{"amount": 6}', 'bound');
BEGIN;
SELECT outcome FROM idem_begin('p8', '{"amount": 5}', 'bound');
SELECT idem_complete('p8', 200, 'by hand', scope => 'bound');
COMMIT;
SELECT outcome FROM idem_execute('p8', 'test.charge(jsonb)', '{"amount": 5}', 'bound');
SELECT outcome FROM idem_execute('p8', 'test.charge(jsonb)', '{"amount": 6}', 'bound');
-- An attempt that begins again knows the operation of the one before.
SELECT (idem_begin('p9', '{"amount": 5}', 'bound')).outcome;
SELECT idem_resolve('p9', 'release', 'bound', even_if_running => true);
SELECT outcome, attempt FROM idem_execute('p9', 'test.charge(jsonb)', '{"amount": 5}', 'bound');
SELECT outcome FROM idem_execute('p9', 'test.refund(jsonb)', '{"amount": 5}', 'bound');
-- After its time the key is free for every operation.
SELECT test.let_pass('10 years', 'bound');
SELECT outcome FROM idem_execute('p1', 'test.refund(jsonb)', '{"amount": 5}', 'bound');

-- A strict function is not called with null, so nothing is granted without a request.
CREATE FUNCTION test.strict(request jsonb) RETURNS jsonb STRICT LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO test.effect VALUES ('strict'); RETURN '1'; END $$;
SELECT outcome FROM idem_execute('s1', 'test.strict(jsonb)', NULL, 'strict');
\echo :SQLSTATE
SELECT count(*) AS records FROM idempotency.records WHERE scope = 'strict';
SELECT outcome FROM idem_execute('s1', 'test.strict(jsonb)', NULL, 'strict', ttl => '0');
SELECT outcome FROM idem_execute('s1', 'test.strict(jsonb)', '{}', 'strict');
SELECT what FROM test.effect;

-- An operation can't end the key that it is run for: neither as its transaction nor by token.
CREATE FUNCTION test.ends(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    own bigint;
BEGIN
    INSERT INTO test.effect VALUES ('ends');
    PERFORM idem_checkpoint('e', 'half', scope => 'own');
    SELECT token INTO own FROM idempotency.record WHERE (scope, key) = ('own', 'e');
    EXECUTE 'SELECT ' || (request ->> 'call') USING own;
    RETURN '1';
END $$;
CREATE FUNCTION test.try_ending(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (idem_execute('e', 'test.ends(jsonb)', jsonb_build_object('call', call), 'own')).status;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
TRUNCATE test.effect;
SELECT call, test.try_ending(call)
  FROM unnest(ARRAY[$$idem_complete('e', 200, 'mine', scope => 'own')$$, $$idem_fail('e', 'mine', true, scope => 'own')$$,
                    $$idem_release('e', 'own')$$, $$idem_complete('e', 200, 'mine', scope => 'own', token => $1)$$,
                    $$idem_fail('e', 'mine', true, scope => 'own', token => $1)$$, $$idem_release('e', 'own', token => $1)$$,
                    $$idem_once('e', 'own')$$, $$idem_resolve('e', 'fail', 'own')$$, $$idem_forget('e', 'own')$$]) call;
SELECT count(*) AS effects FROM test.effect;
SELECT count(*) AS records FROM idempotency.records WHERE scope = 'own';
-- Told so, it may still go on; a checkpoint of its own is its own affair; and other keys are free.
CREATE OR REPLACE FUNCTION test.ends(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_checkpoint('e', 'half', scope => 'own');
    BEGIN
        PERFORM idem_fail('e', 'mine', true, scope => 'own');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        RAISE NOTICE 'refused';
    END;
    PERFORM idem_begin('other', scope => 'own');
    PERFORM idem_complete('other', 200, 'other', scope => 'own');
    RETURN '"went on"';
END $$;
SELECT test.seen(c) FROM idem_execute('e', 'test.ends(jsonb)', '{}', 'own') c;
-- In the same transaction the key can be ended as usual after the operation.
BEGIN;
SELECT outcome FROM idem_execute('e2', 'test.charge(jsonb)', '{}', 'own');
SELECT idem_complete('e2', 200, 'again', scope => 'own');
ROLLBACK;
BEGIN;
SELECT outcome, error FROM idem_execute('e3', 'test.fail_with(jsonb)', '{"code": "P0001"}', 'own');
SELECT idem_complete('e3', 200, 'again', scope => 'own');
ROLLBACK;

DROP TABLE test.effect, test.price;
DROP FUNCTION test.fail_with, test.fate, test.buy, test.charge, test.refund, test.meets, test."a.b", test."Q""q", test.strict,
    test.ends, test.try_ending;
DROP SCHEMA "test.a" CASCADE;
