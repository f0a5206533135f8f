-- Promise: equal requests have equal fingerprints however they are written, different ones differ, and
-- anybody can compute the same.
\set SHOW_CONTEXT never

-- What is hashed: a heading, then method, path and canonical request, each with its length in bytes,
-- or a dash.
CREATE FUNCTION test.framed(method text, path text, canonical text) RETURNS bytea LANGUAGE sql AS $$
    SELECT sha256('idempotency fingerprint 1'::bytea || '\x0a' || string_agg(
               coalesce(convert_to(octet_length(convert_to(field, 'UTF8')) || ':' || field, 'UTF8'), '-') || '\x0a', ''
               ORDER BY position))
      FROM unnest(ARRAY[method, path, canonical]) WITH ORDINALITY AS f (field, position) $$;
SELECT idem_fingerprint('{"b": 1, "a": [true, null, "x"]}', 'POST', '/payments')
       = test.framed('POST', '/payments', '{"a":[true,null,"x"],"b":1}') AS all_fields,
       idem_fingerprint('{}') = test.framed(NULL, NULL, '{}') AS request_only,
       idem_fingerprint(NULL, 'GET') = test.framed('GET', NULL, NULL) AS method_only,
       idem_fingerprint(NULL, NULL, '/') = test.framed(NULL, '/', NULL) AS path_only,
       idem_fingerprint('null', '', '') = test.framed('', '', 'null') AS empty_is_not_absent;
-- Known values: they may never change, or requests of yesterday would not be recognised.
SELECT encode(idem_fingerprint('{"amount": 5, "currency": "EUR"}', 'POST', '/payments'), 'hex') AS payment;
SELECT encode(idem_fingerprint('{}'), 'hex') AS empty_request;
SELECT idem_fingerprint(NULL) IS NULL AS nothing_at_all;

-- Order of members, white space and the notation of numbers and strings do not count.
SELECT a, b, idem_fingerprint(a::jsonb) = idem_fingerprint(b::jsonb) AS same
  FROM (VALUES ('{"a": 1, "b": 2}', '{ "b":2,"a":1 }'), ('1', '1.0'), ('100', '1e2'), ('0.1', '1e-1'), ('-0', '0'),
               ('"\u00e9"', '"é"'), ('"\/"', '"/"'), ('{"a": 1, "a": 2}', '{"a": 2}'),
               ('12345678901234567.00', '12345678901234567')) v (a, b);
-- Order of elements, types, nesting, letter case, the 17th digit and the composition of characters do.
SELECT a, b, idem_fingerprint(a::jsonb) <> idem_fingerprint(b::jsonb) AS different
  FROM (VALUES ('[1, 2]', '[2, 1]'), ('1', '"1"'), ('null', '"null"'), ('{}', '[]'), ('{"a": null}', '{}'),
               ('{"a": {"b": 1}}', '{"a": 1, "b": 1}'), ('{"a": 1}', '{"A": 1}'), ('""', '" "'),
               ('12345678901234567', '12345678901234568'), ('0.12345678901234567', '0.12345678901234568'),
               ('1e400', '2e400'), ('"\u00e9"', '"e\u0301"'), ('["a", "b"]', '["a,b"]'), ('[[1], 2]', '[1, [2]]')) v (a, b);
-- Nothing can slip from one field into the next.
SELECT count(DISTINCT f) = count(*) AS all_different
  FROM (VALUES (idem_fingerprint('1', 'a', 'b')), (idem_fingerprint('1', 'ab', '')), (idem_fingerprint('1', '', 'ab')),
               (idem_fingerprint('1', 'ab')), (idem_fingerprint('1', NULL, 'ab')), (idem_fingerprint(NULL, 'ab', '1')),
               (idem_fingerprint('1', E'a\n1:b')), (idem_fingerprint('"a"', 'b')), (idem_fingerprint('1'))) v (f);

-- exclude: plain names at every depth in any letter case; paths in one place.
SELECT exclude, request, idem_fingerprint(request, exclude => exclude) = idem_fingerprint(rest) AS as_rest
  FROM (VALUES
    ('{ts}'::text[], '{"ts": 1, "a": {"TS": 2, "b": [{"Ts": 3}]}}'::jsonb, '{"a": {"b": [{}]}}'::jsonb),
    ('{ts}', '{"tss": 1}', '{"tss": 1}'),
    ('{$.a.ts}', '{"ts": 1, "a": {"ts": 2, "TS": 3}}', '{"ts": 1, "a": {"TS": 3}}'),
    ('{$.a[*].id}', '{"a": [{"id": 1, "n": 1}, {"id": 2}], "id": 3}', '{"a": [{"n": 1}, {}], "id": 3}'),
    ('{$[*].id}', '[{"id": 1}, {"id": 2, "n": 1}]', '[{}, {"n": 1}]'),
    ('{$.a[*]}', '{"a": [1, 2]}', '{"a": []}'),
    ('{$.missing.b,nowhere}', '{"a": 1}', '{"a": 1}'),
    ('{$.a.b}', '{"a": "scalar"}', '{"a": "scalar"}'),
    ('{$.a,b}', '{"a": 1, "b": 2, "c": 3}', '{"c": 3}'),
    ('{}', '{"a": 1}', '{"a": 1}')) v (exclude, request, rest);
SELECT idem_fingerprint('{}', exclude => '{$}');
\echo :SQLSTATE
SELECT idem_fingerprint('{}', exclude => '{$..a}');
\echo :SQLSTATE
SELECT idem_fingerprint('{}', exclude => '{ok,$.a[1]}');
\echo :SQLSTATE
SELECT idem_fingerprint('{}', exclude => ARRAY[E'a\tb']);
\echo :SQLSTATE

-- Deep and large requests: up to a limit that is told, without harm to the server.
SELECT length(idem_fingerprint((repeat('[', 1000) || repeat(']', 1000))::jsonb)) AS deep;
SELECT idem_fingerprint((repeat('[', 1001) || repeat(']', 1001))::jsonb);
\echo :SQLSTATE
SELECT idem_fingerprint(to_jsonb(array_agg(i))) = test.framed(NULL, NULL, '[' || string_agg(i::text, ',') || ']') AS large
  FROM generate_series(1, 20000) i;

SELECT idem_fingerprint(to_jsonb(repeat('x', 16 * 1024 * 1024)));
\echo :SQLSTATE

-- idem_begin takes the fingerprint of its request alone.
SELECT outcome FROM idem_begin('k', '{"amount": 5}', 'fingerprint');
SELECT fingerprint = idem_fingerprint('{"amount": 5}') AS same FROM idempotency.records WHERE scope = 'fingerprint';
-- Usable wherever an immutable function is.
CREATE TEMP TABLE request (content jsonb, digest bytea GENERATED ALWAYS AS (idem_fingerprint(content)) STORED);
INSERT INTO request VALUES ('{"a": 1}');
SELECT digest = idem_fingerprint('{"a": 1.0}') AS same FROM request;
DROP TABLE request;
DROP FUNCTION test.framed;
