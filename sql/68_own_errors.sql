-- Promise: idem_execute never keeps an error of the extension itself as the answer, nor one that comes
-- after the operation has returned. It raises them, and the key stays free.
\a\pset footer off

CREATE TABLE test.effect (what text);
CREATE FUNCTION test.execute(of_key text, operation regprocedure, of_scope text DEFAULT 'own') RETURNS text
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN 'kept: ' || coalesce((idem_execute(of_key, operation, '{}', of_scope)).error, 'no error');
EXCEPTION WHEN OTHERS THEN
    RETURN 'raised: ' || SQLSTATE || ' ' || SQLERRM;
END $$;

-- A nested call that the extension refuses, whatever the operation is written in.
SELECT idem_policy_set('own-strict', principal_required => true);
CREATE FUNCTION test.claims(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test.effect VALUES ('must not stay');
    PERFORM idem_begin('inner', scope => 'own-strict');
    RETURN '1';
END $$;
CREATE FUNCTION test.claims_in_sql(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb(idem_once('', 'own')) $$;
CREATE FUNCTION test.completes(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin('inner', scope => 'own');
    PERFORM idem_complete('inner', 99, scope => 'own');
    RETURN '1';
END $$;
CREATE FUNCTION test.needs_a_request(jsonb) RETURNS jsonb LANGUAGE sql STRICT AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION test.executes(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb((idem_execute('inner', 'test.needs_a_request(jsonb)', NULL, 'own')).outcome) $$;
-- Raised again by a handler, with other errors and messages between.
CREATE FUNCTION test.raises_again(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin('inner', scope => 'own-strict');
    RETURN '1';
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'a message';
    BEGIN
        RAISE EXCEPTION 'another error';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RAISE;
END $$;
-- A response that can't be kept: its status, its headers, its size.
CREATE FUNCTION test.bad_status(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ INSERT INTO test.effect VALUES ('must not stay'); SELECT idem_response(999, NULL, 'made') $$;
CREATE FUNCTION test.bad_headers(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(200, '{"X-Number": 1}', 'made') $$;
CREATE FUNCTION test.returns_much(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 100)) $$;
SELECT idem_policy_set('own-small', max_body_bytes => 50);

SELECT operation, test.execute('k ' || operation, ('test.' || operation || '(jsonb)')::regprocedure)
  FROM unnest('{claims,claims_in_sql,completes,executes,raises_again,bad_status,bad_headers}'::text[]) operation;
SELECT test.execute('k', 'test.returns_much(jsonb)', 'own-small');
SELECT count(*) AS effects FROM test.effect;
SELECT count(*) AS records FROM idempotency.records WHERE scope LIKE 'own%';
-- A policy can't make them final.
SELECT idem_policy_set('own', final_errors => '{22}');
SELECT test.execute('k', 'test.claims(jsonb)'), test.execute('k', 'test.bad_status(jsonb)');
SELECT idem_policy_drop('own');
-- Once that is mended the same key is executed.
SELECT idem_policy_drop('own-strict', 'a test');
SELECT test.execute('k claims', 'test.claims(jsonb)');
SELECT what FROM test.effect;

-- What the operation says itself is its answer as before: after an error of the extension that it has
-- handled, in an operation that a nested call runs, and after one that went on from there.
CREATE FUNCTION test.declines(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'declined' USING ERRCODE = '22023';
END $$;
CREATE FUNCTION test.handles(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM idem_once('', 'own');
    EXCEPTION WHEN invalid_parameter_value THEN
        NULL;
    END;
    RAISE EXCEPTION 'declined' USING ERRCODE = '22023';
END $$;
CREATE FUNCTION test.says_otherwise(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_once('', 'own');
    RETURN '1';
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE EXCEPTION 'no such account';
END $$;
CREATE FUNCTION test.nests(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb((idem_execute('inner', 'test.declines(jsonb)', '{}', 'own-raises')).outcome) $$;
SELECT idem_policy_set('own-raises', final_errors => '{}');
SELECT operation, test.execute('u ' || operation, ('test.' || operation || '(jsonb)')::regprocedure)
  FROM unnest('{declines,handles,says_otherwise,nests}'::text[]) operation;
SELECT idem_policy_drop('own-raises');

-- A damaged table of records is not the request's fault.
CREATE FUNCTION test.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refused' USING ERRCODE = '23514';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON idempotency.record FOR EACH ROW WHEN (new.key = 'broken')
    EXECUTE FUNCTION test.refuse();
CREATE FUNCTION test.meets_trouble(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT to_jsonb(idem_once('broken', 'own')) $$;
SELECT test.execute('trouble', 'test.meets_trouble(jsonb)');
DROP TRIGGER refuse ON idempotency.record;

-- A parent row may commit a moment later: a missing one is final only where a policy says so.
CREATE TABLE test.account (id int PRIMARY KEY);
CREATE TABLE test.transfer (account int REFERENCES test.account, CHECK (account > 0));
CREATE FUNCTION test.transfers(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ INSERT INTO test.transfer VALUES (1); SELECT '"done"'::jsonb $$;
CREATE FUNCTION test.violates(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ INSERT INTO test.transfer VALUES (-1); SELECT '"done"'::jsonb $$;
CREATE FUNCTION test.closes(jsonb) RETURNS jsonb LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'restricted' USING ERRCODE = '23001'; END $$;
SELECT test.execute('child', 'test.transfers(jsonb)') LIKE 'raised: 23503 %' AS raised;
SELECT test.execute('restricted', 'test.closes(jsonb)') LIKE 'raised: 23001 %' AS raised;
INSERT INTO test.account VALUES (1);
SELECT test.execute('child', 'test.transfers(jsonb)');
SELECT test.execute('check', 'test.violates(jsonb)') LIKE 'kept: 23514%' AS kept;
DELETE FROM test.transfer;
DELETE FROM test.account;
SELECT idem_policy_set('own', final_errors => '{23}');
SELECT test.execute('final child', 'test.transfers(jsonb)') LIKE 'kept: 23503%' AS kept;
SELECT idem_policy_drop('own');

-- A deferred constraint is checked when the operation is over. At COMMIT its violation takes the claim
-- along; an operation that asks for the check has it kept.
ALTER TABLE test.transfer ADD CONSTRAINT once UNIQUE (account) DEFERRABLE INITIALLY DEFERRED;
INSERT INTO test.account VALUES (1);
INSERT INTO test.transfer VALUES (1);
SELECT outcome, status FROM idem_execute('deferred', 'test.transfers(jsonb)', '{}', 'own');
\echo :SQLSTATE
SELECT count(*) AS records FROM idempotency.records WHERE key = 'deferred';
CREATE FUNCTION test.transfers_at_once(jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ INSERT INTO test.transfer VALUES (1); SET CONSTRAINTS ALL IMMEDIATE; SELECT '"done"'::jsonb $$;
SELECT test.execute('at once', 'test.transfers_at_once(jsonb)') LIKE 'kept: 23505%' AS kept;
SELECT count(*) AS transfers FROM test.transfer;

DROP TABLE test.effect, test.transfer, test.account;
DROP FUNCTION test.execute, test.claims, test.claims_in_sql, test.completes, test.needs_a_request, test.executes,
    test.raises_again, test.bad_status, test.bad_headers, test.returns_much, test.declines, test.handles,
    test.says_otherwise, test.nests, test.refuse, test.meets_trouble, test.transfers, test.violates, test.closes,
    test.transfers_at_once;
SELECT idem_policy_drop('own-small');
