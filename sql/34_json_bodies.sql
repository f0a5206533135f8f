-- Promise: a body may be json as well as jsonb, and is kept as it was written; a literal is text as
-- before.
\a\pset footer off

CREATE FUNCTION test.body(key text) RETURNS text LANGUAGE sql AS
    $$ SELECT convert_from(body, 'UTF8') FROM idempotency.records r WHERE (r.scope, r.key) = ('json', body.key) $$;
BEGIN;
SELECT count(idem_begin('j' || i, scope => 'json')) FROM generate_series(1, 12) i;
SELECT idem_complete('j1', 200, json_build_object('b', 1, 'a', 2), scope => 'json');
SELECT idem_complete('j2', 200, '{"b": 1,  "a":2, "a": 3.0}'::json, '{"X": "y"}', scope => 'json');
SELECT idem_complete('j3', status_code => 200, body => row_to_json(r), scope => 'json') FROM (SELECT 1 AS x) r;
SELECT idem_fail('j4', 'no', false, 422, json_build_object('b', 1, 'a', 2), scope => 'json');
SELECT idem_complete('j5', 200, NULL::json, scope => 'json');
-- None of these is ambiguous, and all are text.
SELECT idem_complete('j6', 200, '{"a":  1}', scope => 'json');
SELECT idem_complete('j7', body => '{"a":  1}', status_code => 200, scope => 'json');
SELECT idem_complete('j8', 200, NULL, scope => 'json');
SELECT idem_complete('j9', 200, '{"a":  1}'::varchar, scope => 'json');
SELECT idem_complete('j10', 200, 'name'::name, scope => 'json');
SELECT idem_fail('j11', 'no', false, 422, '{"a":  1}', scope => 'json');
PREPARE by_parameter AS SELECT idem_complete($1, $2, $3, scope => 'json');
EXECUTE by_parameter('j12', 200, '{"a":  1}');
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'by_parameter';
COMMIT;
DEALLOCATE by_parameter;
SELECT 'j' || i AS key, test.body('j' || i) FROM generate_series(1, 12) i;
-- As the answer of an operation.
CREATE FUNCTION test.answers(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(200, NULL, json_build_object('b', 1, 'a', 2)) $$;
SELECT convert_from(body, 'UTF8') AS body FROM idem_execute('j13', 'test.answers(jsonb)', '{}', 'json');
SELECT (idem_response(200, NULL, '{"a":  1}')).body = '{"a":  1}'::bytea AS a_literal_is_text, (idem_response(200, NULL, NULL)).body IS NULL AS none;
-- Rights go with the name.
SELECT bool_and(NOT has_function_privilege('pg_monitor', p.oid, 'EXECUTE')) AS closed, count(*) AS functions
  FROM pg_proc p WHERE p.proname IN ('idem_complete', 'idem_fail');

DROP FUNCTION test.body, test.answers;
