-- Promise: the time to judge input grows linearly with its size. Long work can be cancelled everywhere.
-- The limit is part of the error.
\a\pset footer off

-- Deep and large requests: up to a limit that the error names, without harm to the server.
SELECT length(idem_fingerprint((repeat('[', 1000) || repeat(']', 1000))::jsonb)) AS deep;
SELECT idem_fingerprint((repeat('[', 1001) || repeat(']', 1001))::jsonb);
\echo :SQLSTATE
SELECT idem_fingerprint((repeat('{"a":', 1000) || '1' || repeat('}', 1000))::jsonb) IS NOT NULL AS deep;
SELECT idem_fingerprint((repeat('{"a":', 1001) || '1' || repeat('}', 1001))::jsonb);
\echo :SQLSTATE
-- Depth is not counted across siblings.
SELECT idem_fingerprint(('[' || repeat(repeat('[', 999) || repeat(']', 999) || ',', 3) || '{}]')::jsonb) IS NOT NULL AS deep;
SELECT idem_fingerprint(to_jsonb(array_agg(i))) = test.framed(NULL, NULL, '[' || string_agg(i::text, ',') || ']') AS large
  FROM generate_series(1, 20000) i;
-- 16 MiB in canonical form; the quotes of a string count.
SELECT idem_fingerprint(to_jsonb(repeat('x', 16 * 1024 * 1024)));
\echo :SQLSTATE
SELECT idem_fingerprint(to_jsonb(repeat('x', 16 * 1024 * 1024 - 2)))
       = test.framed(NULL, NULL, '"' || repeat('x', 16 * 1024 * 1024 - 2) || '"') AS at_the_limit;
SELECT idem_fingerprint(to_jsonb(repeat(E'\x01', 16 * 1024 * 1024 / 6 + 1)));
\echo :SQLSTATE
-- Members large enough to be counted before they are sorted.
SELECT idem_fingerprint(jsonb_object_agg('member ' || i, repeat('é', i % 100)))
       = test.framed(NULL, NULL, '{' || string_agg(format('"member %s":"%s"', i, repeat('é', i % 100)), ',' ORDER BY i::text COLLATE "C") || '}') AS sorted
  FROM generate_series(1, 50000) i;
-- Names of many lengths, by which the server keeps them.
SELECT idem_fingerprint(jsonb_object_agg(name, true)) = test.framed(NULL, NULL, '{' || string_agg(format('"%s":true', name), ',' ORDER BY name) || '}') AS sorted
  FROM (SELECT DISTINCT substr(md5(i::text), 1, 1 + i % 32) COLLATE "C" AS name FROM generate_series(1, 20000) i) n;
-- Excluded parts do not count.
SELECT idem_fingerprint(jsonb_build_object('a', 1, 'document', repeat('x', 17 * 1024 * 1024)), exclude => '{document}')
       = idem_fingerprint('{"a": 1}') AS left_out;
-- A few bytes stay a few bytes: no exponent is written out, neither here nor on the way.
SELECT idem_fingerprint(('[' || repeat('1e131000,', 2999) || '-1e-16383]')::jsonb)
       = test.framed(NULL, NULL, '[' || repeat('1e+131000,', 2999) || '-1e-16383]') AS short;
SELECT idem_fingerprint(to_jsonb(10::numeric ^ 131071 - 1)) = test.framed(NULL, NULL, '9.' || repeat('9', 131070) || 'e+131070') AS long;

-- Lists have a limit too, wherever they are given.
SELECT * FROM refused($$
SELECT idem_fingerprint('{}', exclude => (SELECT array_agg('f' || i) FROM generate_series(1, 1001) i));
SELECT idem_policy_set('large', exclude_fields => (SELECT array_agg('f' || i) FROM generate_series(1, 1001) i));
SELECT idem_policy_set('large', drop_headers => (SELECT array_agg('f' || i) FROM generate_series(1, 1001) i));
SELECT idem_key(VARIADIC array_agg(''::text)) FROM generate_series(1, 1001);
$$);
SELECT length(idem_key(VARIADIC array_agg(':'::text))) AS longest FROM generate_series(1, 1000);
SELECT idem_policy_set('large', exclude_fields => array_agg('f' || i), drop_headers => array_agg('f' || i)) FROM generate_series(1, 1000) i;
SELECT outcome FROM idem_begin('k', '{"a": 1, "F1000": 2}', 'large');
SELECT fingerprint = idem_fingerprint('{"a": 1}') AS without_fields FROM idempotency.records WHERE scope = 'large';
SELECT idem_policy_drop('large');

-- Many members and many names: neither waits for the product of both. A cancelled statement would be an
-- error here.
SET statement_timeout = '1min';
SELECT idem_fingerprint(jsonb_object_agg('m' || i, i), exclude => (SELECT array_agg('M' || i) FROM generate_series(1, 1000) i))
       = test.framed(NULL, NULL, '{' || string_agg(format('"m%s":%s', i, i), ',' ORDER BY i::text COLLATE "C") FILTER (WHERE i > 1000) || '}') AS names
  FROM generate_series(1, 60000) i;
SELECT idem_fingerprint(jsonb_object_agg('m' || i, i), exclude => (SELECT array_agg('$.m' || i) FROM generate_series(1, 1000) i))
       = test.framed(NULL, NULL, '{' || string_agg(format('"m%s":%s', i, i), ',' ORDER BY i::text COLLATE "C") FILTER (WHERE i > 1000) || '}') AS paths
  FROM generate_series(1, 60000) i;
-- An interrupt other than a cancel, such as the check of the client's connection, does not restart the work.
SET client_connection_check_interval = '20ms';
SELECT length(idem_fingerprint(jsonb_object_agg('member_' || i, 'value number ' || i))) AS watched FROM generate_series(1, 200000) i;
SELECT length(idem_fingerprint(jsonb_agg(jsonb_build_object('id', i, 'b', true)))) AS watched FROM generate_series(1, 200000) i;
RESET client_connection_check_interval;
RESET statement_timeout;

-- A pending cancel takes effect in each loop, before an error behind it is found.
SELECT * FROM refused($$
WITH r AS MATERIALIZED (SELECT (repeat('[', 1001) || repeat(']', 1001))::jsonb AS j) SELECT pg_cancel_backend(pg_backend_pid()), idem_fingerprint(j) FROM r;
WITH r AS MATERIALIZED (SELECT (repeat('{"a":', 1001) || '1' || repeat('}', 1001))::jsonb AS j) SELECT pg_cancel_backend(pg_backend_pid()), idem_fingerprint(j) FROM r;
WITH r AS MATERIALIZED (SELECT to_jsonb(repeat(E'\x01', 3 * 1024 * 1024)) AS j) SELECT pg_cancel_backend(pg_backend_pid()), idem_fingerprint(j) FROM r;
WITH r AS MATERIALIZED (SELECT '{a,$}'::text[] AS a) SELECT pg_cancel_backend(pg_backend_pid()), idem_fingerprint('{}', exclude => a) FROM r;
WITH r AS MATERIALIZED (SELECT '{a,NULL}'::text[] AS a) SELECT pg_cancel_backend(pg_backend_pid()), idem_key(VARIADIC a) FROM r;
$$);
BEGIN;
SELECT outcome FROM idem_begin('headers', scope => 'large');
SELECT pg_cancel_backend(pg_backend_pid()), idem_complete('headers', 200, repeat('x', 5000000), '{"A": "b"}', 'large');
\echo :SQLSTATE
ROLLBACK;
DROP FUNCTION test.framed;
