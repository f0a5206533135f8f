-- Promise: a replay in FROM writes no temporary file, for any size of the body and of work_mem. Other
-- forms of the call return the same.
\a\pset footer off
-- Of the messages, that there are any: a temporary file has another name each time.
\set VERBOSITY sqlstate
-- Some 300 kB that do not compress, and the same amount that does.
CREATE TABLE test.large_body AS
SELECT string_agg(sha512(i::text::bytea)::text, '') AS hard, repeat('{"article": 1}', 20000) AS soft FROM generate_series(1, 2300) i;
CREATE FUNCTION test.hard() RETURNS text LANGUAGE sql AS $$ SELECT hard FROM test.large_body $$;
CREATE FUNCTION test.soft() RETURNS text LANGUAGE sql AS $$ SELECT soft FROM test.large_body $$;
CREATE FUNCTION test.answers_large(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(test.hard()); END $$;
BEGIN;
SELECT count(idem_begin(key, scope => 'large')) FROM unnest('{hard,soft}'::text[]) key;
SELECT idem_complete('hard', 200, test.hard(), scope => 'large'), idem_complete('soft', 200, test.soft(), scope => 'large');
SELECT outcome FROM idem_execute('executed', 'test.answers_large(jsonb)', '{}', 'large');
COMMIT;

SET work_mem = '64kB';
SET log_temp_files = 0;
SET client_min_messages = log;
-- So it looks where there is one.
SELECT count(*) FROM generate_series(1, 20000);
SELECT outcome, length(body), body = convert_to(test.hard(), 'UTF8') AS as_it_was FROM idem_begin('hard', scope => 'large');
SELECT outcome, length(body), body = convert_to(test.soft(), 'UTF8') AS as_it_was FROM idem_begin('soft', scope => 'large');
SELECT status, length(body), body = convert_to(test.hard(), 'UTF8') AS as_it_was FROM idem_get('hard', 'large');
SELECT outcome, body = convert_to(to_jsonb(test.hard())::text, 'UTF8') AS as_it_was FROM idem_execute('executed', 'test.answers_large(jsonb)', '{}', 'large');
SELECT outcome, length(body) FROM idem_execute('new', 'test.answers_large(jsonb)', '{}', 'large');
WITH claim AS MATERIALIZED (SELECT * FROM idem_begin('hard', scope => 'large', same_statement => true))
SELECT outcome, length(body) FROM claim;
SELECT n, outcome, length(body) FROM ROWS FROM (idem_begin('hard', scope => 'large'), generate_series(1, 1)) WITH ORDINALITY AS c
  (outcome, key, scope, principal, token, attempt, status, status_code, headers, body, body_omitted, error, reference, recovery_point, state, holder, retry_after, created_at, finished_at, lease_until, expires_at, n, o);
SELECT record -> 'body_bytes' AS hard, (SELECT record -> 'body_bytes' FROM idem_explain('soft', scope => 'large')) AS soft
  FROM idem_explain('hard', scope => 'large');
-- Where no key is, the row is of nulls.
SELECT count(*), count(key) FROM idem_get('nobody', 'large');
SELECT key, length(body) FROM unnest('{hard,soft,nobody}'::text[]) WITH ORDINALITY AS k (asked, o), idem_get(asked, 'large') ORDER BY o;
-- As one value.
SELECT (c).outcome, length((c).body) FROM (SELECT idem_begin('hard', scope => 'large') AS c) s;
SELECT (c).outcome, (c).attempt, length((c).body) FROM (SELECT idem_execute('newer', 'test.answers_large(jsonb)', '{}', 'large') AS c) s;
SELECT (idem_get('hard', 'large')).body = convert_to(test.hard(), 'UTF8') AS as_it_was;
CREATE TEMP TABLE kept AS SELECT idem_get('soft', 'large') AS c;
SELECT (c).body = convert_to(test.soft(), 'UTF8') AS as_it_was FROM kept;
DROP TABLE kept;
-- A variable and a cursor keep it, though its record goes.
DO $$
DECLARE
    answer idem_claim;
BEGIN
    SELECT * INTO answer FROM idem_begin('soft', scope => 'large');
    COMMIT;
    ASSERT idem_forget('soft', 'large');
    COMMIT;
    ASSERT answer.body = convert_to(test.soft(), 'UTF8');
END $$;
BEGIN;
DECLARE answer CURSOR WITH HOLD FOR SELECT outcome, md5(body) = md5(test.hard()) AS as_it_was FROM idem_begin('hard', scope => 'large');
COMMIT;
SELECT idem_forget('hard', 'large');
FETCH answer;
CLOSE answer;

RESET client_min_messages;
RESET log_temp_files;
RESET work_mem;
SELECT idem_forget('executed', 'large'), idem_forget('new', 'large'), idem_forget('newer', 'large');
DROP FUNCTION test.hard, test.soft, test.answers_large;
DROP TABLE test.large_body;
