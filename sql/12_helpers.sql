-- Promise: the helpers depend on their arguments alone, and different arguments never look alike.
\a\pset footer off

-- idem_key: parts joined by colons, with separators inside parts escaped.
SELECT idem_key('order-payment', 'order-123');
SELECT idem_key('one'), idem_key('a:b', 'c'), idem_key('a', 'b:c'), idem_key('a\', ':b'), idem_key('a\:', 'b');
SELECT idem_key(VARIADIC '{a,"",c}'), idem_key('', ''), idem_key(U&'\00e9:\+01F600', ' ');
SELECT count(DISTINCT idem_key(VARIADIC parts)) = count(*) AS unambiguous
  FROM (VALUES ('{a,b}'::text[]), ('{a:b}'), ('{"a\\",b}'), ('{"a\\:b"}'), ('{a,"",b}'), ('{a::b}'), ('{"",a,b}'),
               ('{a,b,""}'), ('{"a\\\\",b}'), ('{"a\\","\\b"}'), ('{:}'), ('{"",""}'), ('{"\\"}'), ('{"\\:"}')) v (parts);
SELECT idem_key(VARIADIC '{}');
\echo :SQLSTATE

-- idem_event_id: the same in every session, whatever its time zone and formats.
SELECT idem_event_id('order.paid', 'order-123', '2026-01-02 03:04:05.678901+00');
SET TimeZone = 'Asia/Kathmandu';
SET DateStyle = 'German, DMY';
SET IntervalStyle = 'iso_8601';
SELECT idem_event_id('order.paid', 'order-123', '2026-01-02 08:49:05.678901+05:45');
RESET TimeZone;
RESET DateStyle;
RESET IntervalStyle;
SELECT idem_event_id('order:paid', 'a\b', '1970-01-01 00:00:00+00'), idem_event_id('', '', '1969-12-31 23:59:59.999999+00');
SELECT idem_event_id('e', 'r', '4714-11-24 00:00:00+00 BC'), idem_event_id('e', 'r', '294246-12-31 23:59:59.999999+00');
SELECT idem_event_id('e', 'r', 'infinity');
\echo :SQLSTATE

-- idem_parse_key: a String of RFC 8941/9651, or a bare value.
SELECT header, idem_parse_key(header) AS key
  FROM unnest(ARRAY[
    '"8e03978e-40d5-43dd-bc93-6894a57f9324"', '8e03978e-40d5-43dd-bc93-6894a57f9324', '  "abc" ', E'\tabc\t',
    '"a b"', '"a\"b\\c"', '"abc";v=1', '"abc"; v="x;y"; flag', '"abc";a=?1;b=:AQ==:;c=@1659578233;d=-1.5;e=tok/en',
    '"abc";d=%"f%c3%bc"', '":,;"', 'a:b/c=d+e~f']) header;
SELECT header, idem_parse_key(header) IS NULL AS is_null
  FROM unnest(ARRAY[
    '', '  ', '""', '"', '"abc', 'abc"', '"a"b', '"a", "b"', 'a, b', 'a;b', 'a b', 'a\b', '"a\x"', U&'"\00e9"', U&'\00e9',
    E'"a\tb"', E'a\nb', '"abc";', '"abc";V=1', '"abc";v=', '"abc" ;v=1', '"   "', '"abc",', NULL]) header;
SELECT length(idem_parse_key(repeat('k', 255))), length(idem_parse_key('"' || repeat('k', 255) || '"')),
       idem_parse_key(repeat('k', 256)) IS NULL, idem_parse_key('"' || repeat('k', 256) || '"') IS NULL;

-- idem_http_status and idem_problem: one answer for each outcome, none where the response is the answer.
SELECT outcome, idem_http_status(outcome) AS status
  FROM unnest('{execute,replay,in_progress,mismatch,expired,retry_later,exhausted,unknown,missing_key,bad_key,NULL}'::text[]) outcome;
SELECT idem_http_status('completed');
\echo :SQLSTATE
SELECT outcome, jsonb_pretty(idem_problem(jsonb_populate_record(NULL::idem_claim, jsonb_build_object('outcome', outcome)))) AS problem
  FROM unnest('{execute,replay,in_progress,mismatch,expired,retry_later,exhausted,unknown,missing_key,bad_key}'::text[]) outcome;
-- Each document carries the status of its outcome.
SELECT bool_and((idem_problem(jsonb_populate_record(NULL::idem_claim, jsonb_build_object('outcome', outcome))) ->> 'status')::int
                = idem_http_status(outcome)) AS consistent
  FROM unnest('{in_progress,mismatch,expired,retry_later,exhausted,unknown,missing_key,bad_key}'::text[]) outcome;
-- retry_after in whole seconds, rounded up, as the HTTP header has it.
SELECT pause, idem_problem(jsonb_populate_record(NULL::idem_claim,
           jsonb_build_object('outcome', 'retry_later', 'retry_after', pause))) -> 'retry_after' AS retry_after
  FROM unnest('{0.000001,1,1.000001,120,86400,0,NULL}'::float8[]) pause;
-- And of a real answer.
SELECT outcome FROM idem_begin('k', '{"amount": 5}', 'helpers', lease => '1 hour');
SELECT idem_problem(c) ->> 'status' AS status, (idem_problem(c) ->> 'retry_after')::int BETWEEN 3590 AND 3600 AS in_range
  FROM idem_begin('k', '{"amount": 5}', 'helpers') c;
SELECT idem_problem(c) ->> 'status' AS status FROM idem_begin('k', '{"amount": 6}', 'helpers') c;

-- idem_backoff: doubled with each attempt, never above the cap, for any number of attempts.
SELECT attempt, idem_backoff(attempt, '1 s', '5 min') AS ceiling
  FROM unnest('{1,2,3,9,10,63,64,65,2147483647}'::int[]) attempt;
SELECT idem_backoff(1, '10 s', '5 s'), idem_backoff(3, '0', '1 s'), idem_backoff(3, '1 s', '0'),
       idem_backoff(60, '1 us', '36525 days'), idem_backoff(2, '1 day', '1 mon');
SELECT idem_backoff(NULL, '1 s', '1 s') IS NULL AND idem_backoff(1, NULL, '1 s') IS NULL
       AND idem_backoff(1, '1 s', NULL) IS NULL AS null_of_null;
SELECT * FROM refused($$
SELECT idem_backoff(0, '1 s', '1 s');
SELECT idem_backoff(1, '-1 s', '1 s');
SELECT idem_backoff(1, '1 s', '200000 years');
$$);

-- idem_response: its bodies as bytes.
SELECT (idem_response(200, '{"A": "b"}', U&'\00e9'::text)).*;
SELECT (idem_response(200, NULL, '\x00ff'::bytea)).*;
SELECT convert_from((idem_response(200, NULL, '{"b": 1,"a": 2}'::jsonb)).body, 'UTF8') AS body;

SELECT * FROM refused($$
SELECT idem_key('a', NULL);
SELECT idem_key(VARIADIC NULL);
SELECT idem_event_id(NULL, 'r', now());
SELECT idem_event_id('e', NULL, now());
SELECT idem_event_id('e', 'r', NULL);
$$);
\set VERBOSITY terse

-- A moment whose microseconds since 1970 do not fit is refused, not wrapped around.
SELECT idem_event_id('e', 'r', '294247-01-10 04:00:54.775807+00');
SELECT idem_event_id('e', 'r', '294247-01-10 04:00:54.775808+00');
\echo :SQLSTATE
