-- Promise: a policy sets which errors of an operation are final in its scopes. Errors that another try
-- may not meet are never among them.
\a\pset footer off

CREATE FUNCTION test.fail_with(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'failed' USING ERRCODE = request ->> 'code';
END $$;
CREATE FUNCTION test.fate(code text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN 'kept: ' || (idem_execute(NULL, 'test.fail_with(jsonb)', jsonb_build_object('code', code), 'final')).error;
EXCEPTION WHEN OTHERS THEN
    RETURN 'raised: ' || SQLSTATE;
END $$;
-- The list takes the place of the built-in one: whole classes, and single errors.
SELECT idem_policy_set('final', final_errors => '{P0002,38,23505,P0001}');
SELECT final_errors FROM idempotency.policies WHERE scope_pattern = 'final';
SELECT code, test.fate(code) FROM unnest('{P0001,P0002,P0003,38000,38001,23505,23503,22012,AB123,42P01}'::text[]) code;
SELECT idem_policy_set('final', final_errors => '{}', replace => true);
SELECT code, test.fate(code) FROM unnest('{P0001,22012,AB123}'::text[]) code;
SELECT idem_policy_set('final', replace => true);
SELECT code, test.fate(code) FROM unnest('{P0001,P0002,22012,AB123}'::text[]) code;

-- Refused: values that are not a SQLSTATE or a class, and classes that are never an answer.
CREATE FUNCTION test.set(entry text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_policy_set('final', final_errors => ARRAY['22', entry], replace => true);
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT entry, test.set(entry)
  FROM unnest('{22,22012,0A,ZZ,P0,"",2,220,2201,220123,p0001,"2 ",é0,40,40001,40P01,53,53100,57,57014,58030,XX,XX000,NULL}'::text[]) entry;
-- Written by hand, such a list closes its scope.
SELECT idem_policy_set('final', replace => true);
UPDATE idempotency.policy SET final_errors = '{40001}' WHERE scope_pattern = 'final';
SELECT test.fate('P0001');
UPDATE idempotency.policy SET final_errors = '{22,NULL}' WHERE scope_pattern = 'final';
SELECT test.fate('P0001');
SELECT idem_policy_drop('final');

DROP FUNCTION test.fail_with, test.fate, test.set;
