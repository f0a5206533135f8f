-- Promise: a policy sets the HTTP status with which an operation refuses. The work is rolled back, and the
-- refusal is the answer, the first time and in each replay.
\a\pset footer off
\set SHOW_CONTEXT never

CREATE TABLE test.effect (what text);
CREATE FUNCTION test.fail_with(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test.effect VALUES ('must not stay');
    RAISE EXCEPTION 'card declined' USING ERRCODE = request ->> 'code';
END $$;
CREATE FUNCTION test.fate(code text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    claim idem_claim;
BEGIN
    claim := idem_execute(code, 'test.fail_with(jsonb)', jsonb_build_object('code', code), 'refusals');
    RETURN concat_ws(' ', claim.outcome, claim.status, coalesce(claim.status_code::text, 'no status'), claim.error);
EXCEPTION WHEN OTHERS THEN
    RETURN 'raised: ' || SQLSTATE;
END $$;

SELECT idem_policy_set('refusals', error_statuses => '{"P0001": 402, "P0002": 404, "22": 400, "22012": 422}');
-- The whole SQLSTATE comes before its class. An error with a status is final; others are as before.
SELECT code, test.fate(code) FROM unnest('{P0001,P0002,22P02,22012,23514,38000,40001}'::text[]) code;
SELECT code, test.fate(code) FROM unnest('{P0001,P0002,22P02,22012,23514}'::text[]) code;
SELECT count(*) AS effects FROM test.effect;
SELECT status, status_code, body IS NULL AS no_body, error FROM idem_get('P0001', 'refusals');
SELECT outcome, status_code, idem_problem(c) FROM idem_begin('P0001', '{"code": "P0001"}', 'refusals') c;
-- Beside a list of final errors, which says nothing about statuses.
SELECT idem_policy_alter('refusals', final_errors => '{}');
SELECT idem_forget(key, 'refusals') FROM unnest('{P0001,23514}'::text[]) key;
SELECT code, test.fate(code) FROM unnest('{P0001,23514}'::text[]) code;
-- An error of the extension itself has no status.
CREATE FUNCTION test.nested(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(idem_once('')) $$;
SELECT outcome FROM idem_execute('nested', 'test.nested(jsonb)', '{}', 'refusals');
\echo :SQLSTATE

-- Where policies are shown.
SELECT error_statuses FROM idempotency.policies WHERE scope_pattern = 'refusals';
SELECT value, source, origin FROM idem_policy('refusals') WHERE option = 'error_statuses';
SELECT value, source FROM idem_policy('no refusals') WHERE option = 'error_statuses';
SELECT policy -> 'error_statuses' AS error_statuses FROM idem_explain('P0001', scope => 'refusals');
SELECT idem_policy_alter('refusals', unset => '{error_statuses}');
SELECT after FROM idempotency.decisions WHERE scope = 'refusals' ORDER BY decided_at DESC LIMIT 1;

-- Refused: values that are not an object from SQLSTATEs and classes to error statuses.
CREATE FUNCTION test.set(map jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_policy_set('refusals', error_statuses => map, replace => true);
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT map, test.set(map)
  FROM unnest(ARRAY['{}', '{"P0001": 400}', '{"P0001": 599}', '{"0A": 501, "AB123": 409}', '{"P0001": 399}', '{"P0001": 600}',
                    '{"P0001": 200}', '{"P0001": 402.5}', '{"P0001": -402}', '{"P0001": 4e9}', '{"P0001": "402"}', '{"P0001": null}',
                    '{"P0001": [402]}', '{"": 402}', '{"p0001": 402}', '{"220": 402}', '{"40": 409}', '{"40001": 409}', '{"53": 503}',
                    '{"57014": 504}', '{"58": 500}', '{"XX000": 500}', '[]', '["P0001", 402]', '402', 'null']::jsonb[]) map;
SELECT idem_policy_set('refusals', error_statuses => '{"P0001": 99}', replace => true);
-- Written by hand, such a map closes its scope.
SELECT idem_policy_set('refusals', replace => true);
\set VERBOSITY terse
UPDATE idempotency.policy SET error_statuses = '[]' WHERE scope_pattern = 'refusals';
\set VERBOSITY default
UPDATE idempotency.policy SET error_statuses = '{"40001": 409}' WHERE scope_pattern = 'refusals';
SELECT test.fate('P0001');
SELECT idem_policy_drop('refusals');

DROP TABLE test.effect;
DROP FUNCTION test.fail_with, test.fate, test.nested, test.set;
