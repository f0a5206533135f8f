-- Promise: where a policy names the fields that count, other fields do not change the fingerprint, at any
-- place. A change of the policy makes no repeat of an older request a mismatch.
\a\pset footer off

CREATE FUNCTION test.same(a jsonb, b jsonb, fields text[], exclude text[] DEFAULT NULL) RETURNS boolean LANGUAGE sql AS
    $$ SELECT idem_fingerprint(a, fields => fields, exclude => exclude) = idem_fingerprint(b, fields => fields, exclude => exclude) $$;
-- A plain name, at every depth, in any letter case, with its content; a path, with its content.
SELECT test.same('{"amount": 1, "new": 2}', '{"amount": 1.0}', '{amount}') AS another_field,
       test.same('{"amount": 1}', '{"amount": 2}', '{amount}') AS another_value,
       test.same('{"amount": 1}', '{}', '{amount}') AS absent,
       test.same('{"amount": null}', '{}', '{amount}') AS null_is_a_value,
       test.same('{"a": {"AMOUNT": 1, "x": 1}}', '{"a": {"x": 2, "AMOUNT": 1}}', '{amount}') AS deep,
       test.same('{"a": {"amount": 1}}', '{"amount": 1}', '{amount}') AS elsewhere;
SELECT test.same('{"amount": {"value": 1, "unit": "EUR"}}', '{"amount": {"unit": "USD", "value": 1}}', '{amount}') AS all_in_it,
       test.same('{"a": {"b": 1, "c": 1}, "b": 1}', '{"a": {"b": 1, "c": 2}, "b": 2}', '{$.a.b}') AS path,
       test.same('{"a": {"b": 1}}', '{"a": {"b": 2}}', '{$.a.b}') AS path_value,
       test.same('{"a": {"b": {"c": [1]}}}', '{"a": {"b": {"c": [2]}}}', '{$.a.b}') AS in_a_path,
       test.same('{"A": {"b": 1}}', '{"A": {"b": 2}}', '{$.a.b}') AS letter_case_of_a_path,
       test.same('{"a": {"x": 1}}', '{}', '{$.a.b}') AS on_the_way;
-- Parts without a counted field do not matter, elements of arrays included.
SELECT test.same('[{"id": 1, "n": 1}, {"x": 1}, 5, [[]], {"id": 2}]', '[{"id": 1}, {"id": 2, "n": 3}]', '{id}') AS elements,
       test.same('[{"id": 1}, {"id": 2}]', '[{"id": 2}, {"id": 1}]', '{id}') AS their_order,
       test.same('{"items": [{"id": 1, "n": 1}]}', '{"items": [{"id": 1, "n": 2}, {}]}', '{$.items[*].id}') AS by_path,
       test.same('{"items": [1, {"x": 2}], "n": 1}', '{"items": [1, {"x": 2}], "n": 2}', '{$.items[*]}') AS each_element,
       test.same('{"items": [1, {"x": 2}]}', '{"items": [1, {"x": 3}]}', '{$.items[*]}') AS an_element,
       test.same('{"id": [1, {}, []]}', '{"id": [1, {}]}', '{id}') AS empty_in_what_counts,
       test.same('{"id": {}}', '{}', '{id}') AS empty_but_named;
-- Nothing counts: all such requests are the same, and another one than no request.
SELECT test.same('{"a": 1}', '"text"', '{id}') AND test.same('{}', '[]', '{id}') AND test.same('5', 'null', '{id}') AS nothing,
       idem_fingerprint('{"a": 1}', fields => '{id}') = idem_fingerprint(NULL, '') AS no_request;
-- With exclude: excluded parts do not count, even if they are named or lie within a named field.
SELECT test.same('{"a": {"b": 1, "t": 1}, "c": 1}', '{"a": {"b": 1, "t": 2}, "c": 2}', '{a}', '{t}') AS within,
       test.same('{"a": {"b": 1, "t": 1}}', '{"a": {"b": 2, "t": 1}}', '{a}', '{t}') AS the_rest,
       test.same('{"a": 1, "b": 1}', '{"a": 2, "b": 1}', '{a,b}', '{a}') AS both;
-- All in the canonical order; as documented.
SELECT idem_fingerprint('{"c": 1, "b": {"z": 1, "y": 2, "no": 3}, "a": 1, "no": 2}', fields => '{a,c,$.b.y,$.b.z}')
     = idem_fingerprint('{"a": 1, "b": {"y": 2, "z": 1}, "c": 1}') AS as_if_it_were_all,
       idem_fingerprint('{"a": 1}', fields => NULL) = idem_fingerprint('{"a": 1}') AS null_is_all;
-- Of a request over the limit, only the counted part has to be below it.
SELECT idem_fingerprint(jsonb_build_object('id', 7, 'load', jsonb_build_object('id2', 1, 'text', repeat('x', 17000000))), fields => '{id}')
     = idem_fingerprint('{"id": 7}') AS same;
SELECT idem_fingerprint(jsonb_build_object('id', 7, 'load', repeat('x', 17000000)), fields => '{load}');
\echo :SQLSTATE
SELECT idem_fingerprint(jsonb_object_agg(repeat('n', 60000) || n, jsonb_build_object('id', n, 'more', '{}'::jsonb)), fields => '{id}')
     = idem_fingerprint(jsonb_object_agg(repeat('n', 60000) || n, jsonb_build_object('id', n))) AS long_names
  FROM generate_series(1, 50) n;
SELECT * FROM refused($$
SELECT idem_fingerprint('{"a": 1}', fields => '{$.}');
SELECT idem_fingerprint('{"a": 1}', fields => '{a,NULL}');
$$);

-- By a policy.
SELECT idem_policy_set('fields', fingerprint_fields => '{amount,$.card.number}', exclude_fields => '{$.tip.amount}');
SELECT outcome FROM idem_begin('k', '{"amount": 5, "card": {"number": "1", "name": "a"}, "tip": {"amount": 1}}', 'fields');
SELECT outcome FROM idem_begin('k', '{"amount": 5.0, "card": {"number": "1"}, "tip": {"amount": 2}, "new": true}', 'fields');
SELECT outcome FROM idem_begin('k', '{"amount": 5, "card": {"number": "2"}}', 'fields');
SELECT counted, excluded FROM idempotency.record WHERE scope = 'fields';
SELECT option, value FROM idem_policy('fields') WHERE option LIKE '%_fields';
-- The policy changes: a repeat of an older request is recognised by the old fields, or by the new ones.
SELECT idem_policy_set('fields', fingerprint_fields => '{amount}', replace => true);
SELECT outcome FROM idem_begin('k', '{"amount": 5, "card": {"number": "1"}, "tip": {"amount": 3}}', 'fields');
SELECT outcome FROM idem_begin('k', '{"amount": 5, "card": {"number": "2"}}', 'fields');
SELECT idem_policy_set('fields', replace => true);
SELECT outcome FROM idem_begin('k', '{"amount": 5, "card": {"number": "1"}, "new": 7}', 'fields');
SELECT outcome FROM idem_begin('k', '{"amount": 6, "card": {"number": "1"}}', 'fields');
-- A claim of before, when all counted.
SELECT outcome FROM idem_begin('all', '{"amount": 5, "note": "a"}', 'fields');
SELECT idem_policy_set('fields', fingerprint_fields => '{amount}', replace => true);
SELECT outcome FROM idem_begin('all', '{"amount": 5, "note": "a"}', 'fields');
SELECT outcome FROM idem_begin('all', '{"amount": 5, "note": "b"}', 'fields');
-- The next attempt of a key follows the current policy, and its record says so.
SELECT test.let_pass('1 hour', 'fields');
SELECT outcome, attempt FROM idem_begin('all', '{"amount": 5, "note": "a"}', 'fields');
SELECT counted, excluded FROM idempotency.record WHERE scope = 'fields' AND key = 'all';
SELECT outcome FROM idem_begin('all', '{"amount": 5, "note": "b"}', 'fields');
-- Keys are derived from the counted fields; without any, no key can be derived.
SELECT idem_policy_set('fields', fingerprint_fields => '{amount}', on_missing_key => 'derive', replace => true);
SELECT outcome FROM idem_begin(NULL, '{"amount": 9, "at": 1}', 'fields');
SELECT outcome FROM idem_begin(NULL, '{"amount": 9, "at": 2}', 'fields');
SELECT * FROM refused($$
SELECT outcome FROM idem_begin(NULL, '{"ammount": 9}', 'fields');
-- Refused calls.
SELECT idem_policy_set('fields', fingerprint_fields => '{}');
SELECT idem_policy_set('fields', fingerprint_fields => '{a,$.}');
SELECT idem_policy_set('fields', fingerprint_fields => '{a,NULL}');
$$);
\set VERBOSITY terse
UPDATE idempotency.policy SET fingerprint_fields = '{}' WHERE scope_pattern = 'fields';
\set VERBOSITY default
\echo :SQLSTATE
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_fingerprint_fields_given;
UPDATE idempotency.policy SET fingerprint_fields = '{}' WHERE scope_pattern = 'fields';
SELECT outcome FROM idem_begin('by hand', '{}', 'fields');
\echo :SQLSTATE
UPDATE idempotency.policy SET fingerprint_fields = '{$.}' WHERE scope_pattern = 'fields';
SELECT outcome FROM idem_begin('by hand', '{}', 'fields');
\echo :SQLSTATE
TRUNCATE idempotency.policy;
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_fingerprint_fields_given CHECK (pg_catalog.cardinality(fingerprint_fields) OPERATOR(pg_catalog.>) 0);
DELETE FROM idempotency.record WHERE scope = 'fields';
DROP FUNCTION test.same;
