-- Promise: equal requests have equal fingerprints however they are written, different ones differ, and
-- any client can compute the same.
\a\pset footer off

-- The input of the hash: a heading, then method, path and canonical request, each with its length in bytes,
-- or a dash. (21_large_requests drops this function.)
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

-- The canonical form. Numbers: RFC 8785, appendix B; one number has one form; no digit is lost, where
-- RFC 8785 would round to a double; and no exponent is written out. Only differences are shown.
SELECT request, canonical FROM (VALUES
    ('0', '0'), ('5e-324', '5e-324'), ('-5e-324', '-5e-324'), ('1.7976931348623157e+308', '1.7976931348623157e+308'),
    ('-1.7976931348623157e+308', '-1.7976931348623157e+308'), ('9007199254740992', '9007199254740992'),
    ('-9007199254740992', '-9007199254740992'), ('295147905179352830000', '295147905179352830000'),
    ('9.999999999999997e+22', '9.999999999999997e+22'), ('1e+23', '1e+23'),
    ('1.0000000000000001e+23', '1.0000000000000001e+23'), ('999999999999999700000', '999999999999999700000'),
    ('999999999999999900000', '999999999999999900000'), ('1e+21', '1e+21'),
    ('9.999999999999997e-7', '9.999999999999997e-7'), ('0.000001', '0.000001'),
    ('333333333.3333332', '333333333.3333332'), ('333333333.33333325', '333333333.33333325'),
    ('333333333.3333333', '333333333.3333333'), ('333333333.3333334', '333333333.3333334'),
    ('333333333.33333343', '333333333.33333343'), ('-0.0000033333333333333333', '-0.0000033333333333333333'),
    ('1424953923781206.2', '1424953923781206.2'),
    ('-0', '0'), ('0.000', '0'), ('-0e-5', '0'), ('1.0', '1'), ('1.00', '1'), ('1e0', '1'), ('10e-1', '1'),
    ('0.01E+2', '1'), ('1e-000', '1'), ('-1.50', '-1.5'), ('100', '100'), ('1e2', '100'), ('4.50', '4.5'),
    ('2e-3', '0.002'), ('1E30', '1e+30'), ('0.000000000000000000000000001', '1e-27'), ('12345e-3', '12.345'),
    ('0.0000001', '1e-7'), ('0.00000123', '0.00000123'), ('0.000000123', '1.23e-7'),
    ('100000000000000000000', '100000000000000000000'), ('1000000000000000000000', '1e+21'),
    ('123456789012345678901', '123456789012345678901'),
    ('1234567890123456789012', '1.234567890123456789012e+21'),
    ('123456789012345678901.5', '123456789012345678901.5'), ('10000', '10000'), ('99999999', '99999999'),
    ('100000000', '100000000'), ('0.0001', '0.0001'), ('0.00001', '0.00001'), ('10000.0001', '10000.0001'),
    ('333333333.33333329', '333333333.33333329'), ('9007199254740993', '9007199254740993'),
    ('295147905179352825856', '295147905179352825856'),
    ('0.1000000000000000055511151231257827', '0.1000000000000000055511151231257827'), ('1e400', '1e+400'),
    ('1e-400', '1e-400'), ('123.4567890123456789e-400', '1.234567890123456789e-398'),
    ('-1e131071', '-1e+131071'), ('1e-16383', '1e-16383')) v (request, canonical)
 WHERE idem_fingerprint(request::jsonb) IS DISTINCT FROM test.framed(NULL, NULL, canonical);
-- Strings are escaped only where they must be. Members are sorted at every depth, by the code units of
-- UTF-16: by code point, the face would come last. Elements keep their order.
SELECT request, canonical FROM (VALUES
    ('null', 'null'), ('""', '""'), ('[]', '[]'), ('{}', '{}'), ('[[]]', '[[]]'), ('[1]', '[1]'),
    ('[1.5,-2,"\u0001",{"a":{"b":[true,false]}}]', '[1.5,-2,"\u0001",{"a":{"b":[true,false]}}]'),
    ('"\u0008\u0009\u000a\u000c\u000d\u0022\u005c"', '"\b\t\n\f\r\"\\"'),
    ('"\u0001\u000B\u000e\u001F"', '"\u0001\u000b\u000e\u001f"'),
    ('"\/\u007f\u2028\u003c\u00E9"', U&'"/\007f\2028<\00e9"'),
    ('{"\u0041\n":1}', '{"A\n":1}'),
    (' { "b" : [ 3 , { "z" : 1 , "y" : { } } , [ ] ] , "a" : null } ', '{"a":null,"b":[3,{"y":{},"z":1},[]]}'),
    ('{"10":0,"9":0,"":0,"aa":0,"a":0,"A":0}', '{"":0,"10":0,"9":0,"A":0,"a":0,"aa":0}'),
    ('{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}',
     U&'{"\\r":2,"1":4,"\0080":6,"\00f6":7,"\20ac":1,"\+01f600":5,"\fb33":3}'),
    ('{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
       "string": "\u20ac$\u000F\u000aA''\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}',
     U&'{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],'
     || U&'"string":"\20ac$' || '\u000f\nA''B\"\\\\\"/"}')) v (request, canonical)
 WHERE idem_fingerprint(request::jsonb) IS DISTINCT FROM test.framed(NULL, NULL, canonical);

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
-- The rest, by canonical form.
SELECT * FROM (VALUES
    ('{ts}', '{"ts":1,"a":{"ts":{"b":1},"c":[{"ts":[]},[{"ts":0,"d":2}]]}}', '{"a":{"c":[{},[{"d":2}]]}}'),
    ('{ts}', '[{"ts":1},{"tss":1,"t":2}]', '[{},{"t":2,"tss":1}]'),
    ('{Trace_Id}', '{"trace_id":1,"TRACE_ID":2,"traceId":3}', '{"traceId":3}'),
    ('{été}', '{"éTé":1,"Été":2}', '{"Été":2}'),
    ('{a@z}', '{"A`Z":1,"A@Z":2}', '{"A`Z":1}'),
    ('{"\"a.b\""}', '{"a":{"b":1},"a.b":2}', '{"a":{"b":1}}'),
    ('{"\"a[*]\""}', '{"a":[1],"a[*]":2}', '{"a":[1]}'),
    ('{x}', '["x",{"y":"x"}]', '["x",{"y":"x"}]'),
    ('{$.b}', '{"a":{"b":1,"c":{"b":2}},"b":3}', '{"a":{"b":1,"c":{"b":2}}}'),
    ('{$.a.b}', '{"a":{"b":1,"c":{"b":2}},"b":3}', '{"a":{"c":{"b":2}},"b":3}'),
    ('{$.a.c.b}', '{"a":{"b":1,"c":{"b":2}},"b":3}', '{"a":{"b":1,"c":{}},"b":3}'),
    ('{$.a}', '{"a":{"b":1,"c":{"b":2}},"b":3}', '{"b":3}'),
    ('{$.a.B}', '{"a":{"b":1,"B":2},"A":{"B":3}}', '{"A":{"B":3},"a":{"b":1}}'),
    ('{$.a[*].b}', '{"a":[{"b":1,"c":2},{"b":3},4,[{"b":5}]]}', '{"a":[{"c":2},{},4,[{"b":5}]]}'),
    ('{$.a[*][*].b}', '{"a":[[{"b":1}],{"b":2}]}', '{"a":[[{}],{"b":2}]}'),
    ('{$.a[*].b[*].c}', '{"a":[{"b":[{"c":1,"d":2}]}]}', '{"a":[{"b":[{"d":2}]}]}'),
    ('{$[*].id}', '[{"id":1,"v":2},{"id":3}]', '[{"v":2},{}]'),
    ('{$.a[*]}', '{"a":[1,2],"b":[3]}', '{"a":[],"b":[3]}'),
    ('{$.a[*][*]}', '{"a":[[1],[2],3]}', '{"a":[[],[],3]}'),
    ('{$[*]}', '[1,[2]]', '[]'),
    ('{x,$.x,$.a.x.y,$.a[*].b,$.c.b,$.c[*].x,$[*].a}', '{"a":{"b":1},"c":[{"b":1}],"d":null}',
     '{"a":{"b":1},"c":[{"b":1}],"d":null}'),
    ('{x,$.x,$[*].a}', '1', '1'), ('{x,$.x,$[*].a}', '"x"', '"x"'), ('{x,$.x,$[*].a}', 'null', 'null'),
    ('{x,$.x,$[*].a}', '[]', '[]'), ('{x,$.x,$[*].a}', '{}', '{}'), ('{$[*]}', '1', '1'),
    ('{$.a.b,ts,$.c,nonce}', '{"a":{"b":1,"TS":2,"d":3},"c":4,"Nonce":5}', '{"a":{"d":3}}'),
    ('{$.a,$.a,a}', '{"a":1,"b":2}', '{"b":2}')) v (exclude, request, canonical)
 WHERE idem_fingerprint(request::jsonb, exclude => exclude::text[])
       IS DISTINCT FROM test.framed(NULL, NULL, canonical);
SELECT * FROM refused($$
SELECT idem_fingerprint('{}', exclude => '{$}');
SELECT idem_fingerprint('{}', exclude => '{$..a}');
SELECT idem_fingerprint('{}', exclude => '{ok,$.a[1]}');
SELECT idem_fingerprint('{}', exclude => ARRAY[E'a\tb']);
$$);

-- idem_begin takes the fingerprint of its request alone.
SELECT outcome FROM idem_begin('k', '{"amount": 5}', 'fingerprint');
SELECT fingerprint = idem_fingerprint('{"amount": 5}') AS same FROM idempotency.records WHERE scope = 'fingerprint';
-- Usable wherever an immutable function is.
CREATE TEMP TABLE request (content jsonb, digest bytea GENERATED ALWAYS AS (idem_fingerprint(content)) STORED);
INSERT INTO request VALUES ('{"a": 1}');
SELECT digest = idem_fingerprint('{"a": 1.0}') AS same FROM request;
DROP TABLE request;
