-- Promise: a record keeps a response only if HTTP can send it again. The limit counts the stored form.
\a\pset footer off

-- max_body_bytes counts the text of headers, state and request: the bytes of ::text.
CREATE FUNCTION test.kept(part text, document jsonb, bytes int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_policy_set('sized', max_body_bytes => bytes, store_request => true, replace => true);
    PERFORM idem_begin('k', CASE WHEN part = 'request' THEN document END, 'sized', fingerprint => '\x01');
    IF part = 'state' THEN PERFORM idem_checkpoint('k', 'p', document, 'sized'); END IF;
    IF part = 'headers' THEN PERFORM idem_complete('k', 200, headers => document, scope => 'sized'); END IF;
    PERFORM idem_forget('k', 'sized') WHERE part = 'headers';
    PERFORM idem_release('k', 'sized') WHERE part <> 'headers';
    RETURN 'kept';
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN SQLERRM;
END $$;
CREATE TABLE test.document (document jsonb);
INSERT INTO test.document VALUES ('{}'), ('[]'), ('{"a": []}'), ('[[], {}, [[]]]'), ('{"a": 1, "b": [true, false, null], "c": {"d": -0.50}}'),
    ('"scalar"'), ('1e-7'), ('null'), (jsonb_build_object(E'q"\\\b\f\n\r\t\u0001\u001f\u007f', U&'\00e9\+01F600/')), ('[1e1000, 1E-1000]'),
    ((SELECT jsonb_object_agg(i, i) FROM generate_series(1, 200) i)), (to_jsonb(repeat('x', 5000)));
SELECT left(document::text, 40) AS document, octet_length(document::text) AS bytes,
       test.kept('state', document, octet_length(document::text)) AS just,
       test.kept('state', document, octet_length(document::text) - 1) AS too_large
  FROM test.document;
-- A number that is short in binary and long as text counts by its text.
SELECT pg_column_size('[1e130000]'::jsonb) < 100 AS small, test.kept('state', '[1e130000]', 100000) AS counted;
SELECT test.kept('request', '[1e1000, 2]', octet_length('[1e1000, 2]'::jsonb::text)) AS just,
       test.kept('request', '[1e1000, 2]', octet_length('[1e1000, 2]'::jsonb::text) - 1) AS too_large;
-- Of headers, those that are kept.
SELECT test.kept('headers', '{"X-A": "b"}', 12) AS just, test.kept('headers', '{"X-A": "b"}', 11) AS too_large,
       test.kept('headers', jsonb_build_object('X-A', 'b', 'Set-Cookie', repeat('x', 5000)), 12) AS dropped,
       test.kept('headers', '{"Set-Cookie": "s=1"}', 0) AS nothing_left;
-- The hint names the remedy.
SELECT idem_policy_set('sized', max_body_bytes => 5, replace => true);
BEGIN;
SELECT outcome FROM idem_begin('k', scope => 'sized');
SELECT idem_complete('k', 200, headers => '{"Location": "/orders/1"}', scope => 'sized');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_begin('k', scope => 'sized');
SELECT idem_complete('k', 200, 'longer', scope => 'sized');
ROLLBACK;
SELECT idem_policy_set('sized', max_body_bytes => 5, on_large_body => 'omit', replace => true);
BEGIN;
SELECT outcome FROM idem_begin('k', scope => 'sized');
SELECT idem_complete('k', 200, 'longer', '{"Location": "/orders/1"}', scope => 'sized');
ROLLBACK;
SELECT idem_policy_drop('sized');

-- A header's value has no line break, and no other control character but the tab.
CREATE FUNCTION test.fate(headers jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin('h', scope => 'headers');
    PERFORM idem_complete('h', 200, headers => headers, scope => 'headers');
    PERFORM idem_forget('h', 'headers');
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT name, test.fate(jsonb_build_object('Location', '/a' || value || 'b')) AS string,
       test.fate(jsonb_build_object('Location', jsonb_build_array('ok', '/a' || value || 'b'))) AS array
  FROM (VALUES ('CR LF', E'\r\nSet-Cookie: s=1'), ('CR', E'\r'), ('LF', E'\n'), ('tab', E'\t'), ('backspace', E'\b'), ('U+0001', U&'\0001'),
               ('U+001F', U&'\001f'), ('DEL', U&'\007f'), ('U+0080', U&'\0080'), ('NEL', U&'\0085'), ('U+009F', U&'\009f'), ('U+00A0', U&'\00a0'),
               ('letters', U&'\00e9\0148\+01F600'), ('nothing', '')) v (name, value);
-- Names that HTTP takes for the same stand once.
SELECT headers, test.fate(headers::jsonb)
  FROM unnest('{"{\"ETag\": \"1\", \"etag\": \"2\"}", "{\"X-Ab\": \"1\", \"Etag\": \"2\", \"x-aB\": [\"3\"]}", "{\"X-A\": \"1\", \"X-B\": \"2\", \"X-AA\": \"3\"}",
                "{\"X_A\": \"1\", \"X-A\": \"2\"}", "{\"Set-Cookie\": \"1\", \"set-cookie\": \"2\"}"}'::text[]) headers;
SELECT test.fate((SELECT jsonb_object_agg('X-' || i, 'v') FROM generate_series(1, 20000) i)) AS many,
       test.fate((SELECT jsonb_object_agg('X-' || i, 'v') || '{"x-77777": "v"}' FROM generate_series(1, 100000) i)) AS one_of_many_twice;
-- Wherever headers come in.
CREATE FUNCTION test.injects(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(302, $1, 'made') $$;
SELECT status, error FROM idem_execute('i1', 'test.injects(jsonb)', '{"Location": "/a\r\nSet-Cookie: s=1"}', 'headers');
SELECT status, error FROM idem_execute('i2', 'test.injects(jsonb)', '{"Location": "/a", "location": "/b"}', 'headers');
SELECT token FROM idem_begin('r1', scope => 'headers') \gset
SELECT idem_fail('r1', 'bad', headers => '{"Location": "/a\nb"}', scope => 'headers', token => :token);
\echo :SQLSTATE
SELECT idem_resolve('r1', 'complete', 'headers', headers => '{"Location": "/a\nb"}');
\echo :SQLSTATE

-- An interim status is no answer.
CREATE FUNCTION test.status(code int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin('s', scope => 'status');
    PERFORM idem_complete('s', code, scope => 'status');
    PERFORM idem_forget('s', 'status');
    RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT code, test.status(code) FROM unnest('{99,100,101,103,199,200,204,304,599,600}'::int[]) code;
SELECT * FROM refused($$
SELECT idem_fail('r1', 'bad', status_code => 102, scope => 'headers', token => :token);
SELECT idem_resolve('r1', 'complete', 'headers', status_code => 199);
$$, :token);
CREATE FUNCTION test.continues(jsonb) RETURNS idem_response LANGUAGE sql AS
    $$ SELECT idem_response(100, NULL, 'made') $$;
SELECT status, error FROM idem_execute('i3', 'test.continues(jsonb)', '{}', 'headers');

-- An operator's decision keeps a response that fits, and reports one that does not.
SELECT * FROM refused($$
SELECT idem_resolve('r1', 'complete', 'headers', error => 'none');
SELECT idem_resolve('r1', 'release', 'headers', status_code => 200);
SELECT idem_resolve('r1', 'release', 'headers', body => 'x');
SELECT idem_resolve('r1', 'release', 'headers', headers => '{}');
$$);
SELECT status, attempt FROM idem_get('r1', 'headers');
SELECT idem_resolve('r1', 'release', 'headers', error => 'the provider says that nothing arrived', even_if_running => true);
SELECT outcome, attempt, error, token FROM idem_begin('r1', scope => 'headers') \gset
\echo :outcome :attempt :error
SELECT idem_resolve('r1', 'fail', 'headers', error => repeat(U&'\00e9', 1000000), status_code => 500, body => 'gone');
SELECT status, octet_length(error) AS bytes, error = repeat(U&'\00e9', 32768) AS clipped FROM idempotency.records
 WHERE (scope, key) = ('headers', 'r1');

DROP FUNCTION test.kept, test.fate, test.injects, test.status, test.continues;
DROP TABLE test.document;
