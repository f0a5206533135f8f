-- Every in_progress says when to ask again; a JSON null is no headers; fields that concern one
-- message or connection are not kept; idem_event_id always gives a valid key.
\a\pset footer off

-- This transaction's own claim: a hint. A leased one: the rest of its lease.
BEGIN;
SELECT outcome FROM idem_begin('own', scope => 'hint');
SELECT outcome, retry_after FROM idem_begin('own', scope => 'hint');
SELECT idem_problem(c)->'retry_after' AS retry_after FROM idem_begin('own', scope => 'hint') c;
SELECT outcome, reason, retry_after FROM idem_explain('own', scope => 'hint');
ROLLBACK;
SELECT outcome FROM idem_begin('leased', scope => 'hint', lease => '1 hour');
SELECT outcome, retry_after > 3000 AND retry_after <= 3600 AS rest_of_lease FROM idem_begin('leased', scope => 'hint');
-- A prepared transaction's, which has the key's lock.
BEGIN;
SELECT outcome FROM idem_begin('prepared', scope => 'hint');
PREPARE TRANSACTION 'regress_hint';
SELECT outcome, retry_after FROM idem_begin('prepared', scope => 'hint');
SELECT outcome, reason, retry_after FROM idem_explain('prepared', scope => 'hint');
SELECT idem_problem(c) FROM idem_begin('prepared', scope => 'hint') c;
ROLLBACK PREPARED 'regress_hint';
-- One that has written the row.
BEGIN;
SELECT outcome FROM idem_begin('written', scope => 'hint');
SELECT idem_complete('written', scope => 'hint');
PREPARE TRANSACTION 'regress_hint';
SELECT outcome, retry_after FROM idem_begin('written', scope => 'hint');
ROLLBACK PREPARED 'regress_hint';

-- JSON null.
SELECT outcome FROM idem_begin('null', scope => 'hint');
SELECT token FROM idempotency.record WHERE key = 'null' \gset
SELECT idem_complete('null', 200, 'x', 'null', scope => 'hint', token => :token);
SELECT outcome, status_code, headers IS NULL AS none FROM idem_begin('null', scope => 'hint');
BEGIN;
SELECT outcome FROM idem_begin('null fail', scope => 'hint');
SELECT idem_fail('null fail', headers => 'null', scope => 'hint');
COMMIT;
SELECT outcome, headers IS NULL AS none FROM idem_begin('null fail', scope => 'hint');
CREATE FUNCTION hint_answer(request jsonb) RETURNS idem_response LANGUAGE sql AS $$ SELECT 202, 'null'::jsonb, NULL::bytea $$;
SELECT outcome, status_code, headers IS NULL AS none FROM idem_execute('null execute', 'hint_answer(jsonb)', scope => 'hint');
SELECT outcome FROM idem_begin('null resolve', scope => 'hint', lease => '1 us');
SELECT idem_resolve('null resolve', 'complete', scope => 'hint', headers => 'null');
SELECT outcome, headers IS NULL AS none FROM idem_begin('null resolve', scope => 'hint');
-- Other values that are no object are refused as before.
BEGIN;
SELECT outcome FROM idem_begin('other', scope => 'hint');
SELECT idem_complete('other', headers => '[null]', scope => 'hint');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_begin('other', scope => 'hint');
SELECT idem_complete('other', headers => '{"A": null}', scope => 'hint');
ROLLBACK;

-- Not stored, in any letter case.
BEGIN;
SELECT outcome FROM idem_begin('drop', scope => 'hint');
SELECT idem_complete('drop', 200, 'x', '{"Content-Type": "a/b", "content-length": "1", "Keep-Alive": "timeout=5", "UPGRADE": "h2c",
    "TE": "trailers", "Trailer": "X", "Proxy-Connection": "close", "Connection": "close", "Transfer-Encoding": "chunked",
    "Date": "now", "Set-Cookie": "a", "Upgrade-Insecure-Requests": "1"}', scope => 'hint');
COMMIT;
SELECT headers FROM idem_begin('drop', scope => 'hint');
SELECT value FROM idem_policy('hint') WHERE option = 'drop_headers';

-- Too long for a key, or with characters that keys can't have: a digest, the same for the same event.
SELECT length(idem_event_id('order.paid', repeat('x', 216), 'epoch')) AS short, idem_event_id('order.paid', repeat('x', 300), 'epoch') AS long;
SELECT idem_event_id('order.paid', repeat('x', 242), 'epoch') ~ '^order' AS at_limit, idem_event_id('order.paid', repeat('x', 243), 'epoch') ~ '^[0-9a-f]{64}$' AS beyond;
SELECT idem_event_id(E'a\nb', 'r', 'epoch') = idem_event_id(E'a\nb', 'r', 'epoch') AS same, idem_event_id(E'a\nb', 'r', 'epoch') ~ '^[0-9a-f]{64}$' AS hashed,
       idem_event_id(E'a\nb', 'r', 'epoch') = idem_event_id(E'a\tb', 'r', 'epoch') AS alike;
SELECT idem_once(idem_event_id(e, r, 'epoch'), scope => 'hint') AS first
  FROM (VALUES ('order.paid', repeat('x', 300)), ('order.paid', repeat('x', 301)), (E'a\nb', ''), (repeat(U&'\00e4', 200), repeat(':', 100)), ('', '')) AS v (e, r);
DROP FUNCTION hint_answer;
DELETE FROM idempotency.record WHERE scope = 'hint';
