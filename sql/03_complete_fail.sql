-- Promise: a result is recorded once and replayed byte for byte. A repeated call is harmless. A caller
-- without the claim changes nothing.
\a\pset footer off

-- Every signature of idem_complete, in the transaction of the claim.
BEGIN;
SELECT outcome FROM unnest('{text,bytea,jsonb,none,status}'::text[]) k, idem_begin(k, scope => 'finish');
SELECT idem_complete('text', 200, 'plain', '{"Content-Type": "text/plain"}', 'finish');
SELECT idem_complete('bytea', 200, '\x00ff00'::bytea, scope => 'finish');
SELECT idem_complete('jsonb', 200, '{"b": 1, "a": [1.10, 1e2]}'::jsonb, scope => 'finish');
SELECT idem_complete('none', scope => 'finish');
SELECT idem_complete('status', 204, scope => 'finish');
COMMIT;
SELECT test.seen(c) FROM unnest('{text,bytea,jsonb,none,status}'::text[]) k, idem_begin(k, scope => 'finish') c;

-- Every signature of idem_fail.
BEGIN;
SELECT outcome FROM unnest('{f-text,f-bytea,f-jsonb,f-none}'::text[]) k, idem_begin(k, scope => 'finish');
SELECT idem_fail('f-text', 'declined', false, 402, 'plain', '{"Content-Type": "text/plain"}', 'finish');
SELECT idem_fail('f-bytea', 'declined', false, 402, '\x00ff00'::bytea, scope => 'finish');
SELECT idem_fail('f-jsonb', 'declined', false, 402, '{"b": 1, "a": 2}'::jsonb, scope => 'finish');
SELECT idem_fail('f-none', scope => 'finish');
COMMIT;
SELECT test.seen(c) FROM unnest('{f-text,f-bytea,f-jsonb,f-none}'::text[]) k, idem_begin(k, scope => 'finish') c;

-- Bodies come back byte for byte: text as it was written, jsonb in its normal form.
CREATE TEMP TABLE body (key text, given text);
INSERT INTO body VALUES
    ('b-sql', $$'; DROP TABLE idempotency.record; --$$), ('b-format', '%s %d %n %%'),
    ('b-json', '{"b": 1, "a": 2, "a": 3,  "n": 1.0}'), ('b-empty', ''),
    ('b-space', E'  \t\r\n '), ('b-unicode', U&'\00e9e\0301\+01F600'), ('b-backslash', '\x41\000');
SELECT count(*) FROM body b, idem_begin(b.key, scope => 'finish') c WHERE c.outcome = 'execute';
SELECT count(*) FROM body b JOIN idempotency.record r ON (r.scope, r.key) = ('finish', b.key)
 WHERE idem_complete(r.key, 200, b.given, scope => r.scope, token => r.token);
SELECT to_json(b.given) AS given, c.outcome, c.body = convert_to(b.given, 'UTF8') AS same
  FROM body b, idem_begin(b.key, scope => 'finish') c ORDER BY b.key;
-- Every byte value there is, and a body of many pages.
SELECT string_agg(set_byte('\x00', 0, i), '' ORDER BY i) AS every_byte FROM generate_series(0, 255) i \gset
SELECT outcome FROM unnest('{b-binary,b-long}'::text[]) k, idem_begin(k, scope => 'finish');
SELECT idem_complete(key, 200, :'every_byte'::bytea, scope => scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('finish', 'b-binary');
SELECT idem_complete(key, 200, (SELECT string_agg(sha256(i::text::bytea), '') FROM generate_series(1, 5000) i),
                     scope => scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('finish', 'b-long');
SELECT body = :'every_byte'::bytea AS same FROM idem_begin('b-binary', scope => 'finish');
SELECT length(body), body = (SELECT string_agg(sha256(i::text::bytea), '') FROM generate_series(1, 5000) i) AS same
  FROM idem_begin('b-long', scope => 'finish');
SELECT convert_from(body, 'UTF8') AS normal_form FROM idem_begin('jsonb', scope => 'finish');

-- A repeated call with the same token is harmless: false, and the first result stays.
SELECT token AS twice FROM idem_begin('twice', scope => 'finish') \gset
SELECT idem_complete('twice', 200, 'first', scope => 'finish', token => :twice);
SELECT idem_complete('twice', 500, 'second', scope => 'finish', token => :twice);
SELECT idem_fail('twice', 'third', scope => 'finish', token => :twice);
SELECT idem_release('twice', scope => 'finish', token => :twice);
SELECT test.seen(c) FROM idem_begin('twice', scope => 'finish') c;
-- The same within the transaction of the claim, with and without the token.
BEGIN;
SELECT token AS own FROM idem_begin('own', scope => 'finish') \gset
SELECT idem_complete('own', 200, 'first', scope => 'finish', token => :own);
SELECT idem_complete('own', 500, 'second', scope => 'finish');
SELECT idem_fail('own', 'third', scope => 'finish', token => :own);
COMMIT;
SELECT test.seen(c) FROM idem_begin('own', scope => 'finish') c;

-- Another token is an error and changes nothing, whether the claim runs or has ended.
SELECT token AS fenced FROM idem_begin('fenced', scope => 'finish') \gset
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT idem_complete('fenced', 200, scope => 'finish', token => :token - 1);
SELECT idem_fail('fenced', scope => 'finish', token => :token + 1);
SELECT idem_complete('twice', 200, scope => 'finish', token => 0);
SELECT idem_fail('twice', scope => 'finish', token => :token);
$$, :fenced);
-- The same in the transaction of the claim.
BEGIN;
SELECT token FROM idem_begin('inside', scope => 'finish') \gset
SAVEPOINT s;
SELECT idem_complete('inside', 200, scope => 'finish', token => :token + 1);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT idem_complete('inside', 200, scope => 'finish');
SELECT idem_complete('inside', 200, scope => 'finish', token => :token + 1);
\echo :SQLSTATE
ROLLBACK;
-- No record.
SELECT * FROM refused($$
SELECT idem_complete('nobody', 200, scope => 'finish', token => :token);
SELECT idem_complete('nobody', 200, scope => 'finish');
SELECT idem_fail('nobody', scope => 'finish', token => :token);
-- The record of another scope or principal is another record.
SELECT idem_complete('fenced', 200, scope => 'finish', principal => 'shop', token => :token);
SELECT idem_complete('fenced', 200, token => :token);
$$, :fenced);
-- The token may only be left out in the transaction of the claim.
SELECT * FROM refused($$
SELECT idem_complete('fenced', 200, scope => 'finish');
SELECT idem_fail('fenced', scope => 'finish');
SELECT idem_complete('twice', 200, scope => 'finish');
$$);
SELECT test.stored() = :'before' AS unchanged;

-- Retryable failures keep error, attempt and the time of the next one; by default a random pause
-- below the policy's ceiling.
SELECT idem_policy_set('finish-retry', retry_base => '1 hour', retry_cap => '3 hours');
SELECT count(*) FROM generate_series(1, 40) i, idem_begin('r' || i, scope => 'finish-retry') c
 WHERE c.outcome = 'execute';
SELECT bool_and(idem_fail(key, 'bank is down', true, scope => scope, token => token))
  FROM idempotency.record WHERE scope = 'finish-retry';
SELECT DISTINCT status, error, attempt, next_attempt_at BETWEEN finished_at AND finished_at + interval '1 hour' AS in_range
  FROM idempotency.records WHERE scope = 'finish-retry';
SELECT count(DISTINCT next_attempt_at - finished_at) > 30 AS random,
       max(next_attempt_at - finished_at) > interval '30 min' AS full_range
  FROM idempotency.records WHERE scope = 'finish-retry';
-- It doubles with each attempt, up to the cap.
UPDATE idempotency.record SET attempt = 9, next_attempt_at = now() WHERE scope = 'finish-retry';
SELECT count(*) FROM generate_series(1, 40) i, idem_begin('r' || i, scope => 'finish-retry') c
 WHERE c.outcome = 'execute' AND c.attempt = 10 AND c.error = 'bank is down';
SELECT bool_and(idem_fail(key, retryable => true, scope => scope, token => token))
  FROM idempotency.record WHERE scope = 'finish-retry';
SELECT bool_and(next_attempt_at <= finished_at + interval '3 hours') AS capped,
       max(next_attempt_at - finished_at) > interval '1 hour' AS grown
  FROM idempotency.records WHERE scope = 'finish-retry';
SELECT idem_policy_drop('finish-retry');
-- A retry drops the failed attempt's result as soon as it ends.
SELECT token AS again FROM idem_begin('again', scope => 'finish') \gset
SELECT idem_fail('again', 'down', true, 503, 'later', '{"Retry-After": "0"}', 'finish', token => :again, retry_after => '0');
BEGIN;
SELECT outcome, attempt, error FROM idem_begin('again', scope => 'finish');
SELECT idem_complete('again', 200, scope => 'finish');
COMMIT;
SELECT test.seen(c) FROM idem_begin('again', scope => 'finish') c;

-- Headers that carry credentials, or belong to one connection or moment, are not kept.
BEGIN;
SELECT outcome FROM idem_begin('headers', scope => 'finish');
SELECT idem_complete('headers', 200, NULL, '{"SET-COOKIE": "s=1", "authorization": "x", "Proxy-authenticate": "x",
    "www-Authenticate": ["a", "b"], "dAtE": "today", "CONNECTION": "close", "transfer-encoding": "chunked",
    "Set-Cookie2": "kept", "X-Date": "kept", "Link": ["</1>", "</2>"], "Empty": "", "None": []}', 'finish');
COMMIT;
SELECT headers FROM idem_begin('headers', scope => 'finish');
BEGIN;
SELECT outcome FROM idem_begin('no-headers', scope => 'finish');
SELECT idem_fail('no-headers', headers => '{"Set-Cookie": "s=1"}', scope => 'finish');
COMMIT;
SELECT headers FROM idem_begin('no-headers', scope => 'finish');

-- A body at the limit is kept; one byte more is an error, or is left out and said to be.
SELECT idem_policy_set('finish-error', max_body_bytes => 10);
SELECT idem_policy_set('finish-omit', max_body_bytes => 10, on_large_body => 'omit');
SELECT scope, token FROM idem_begin('body', scope => 'finish-error') \gset error_
SELECT scope, token FROM idem_begin('body', scope => 'finish-omit') \gset omit_
SELECT * FROM refused($$
SELECT idem_complete('body', 200, repeat('x', 11), scope => 'finish-error', token => :token);
SELECT idem_fail('body', status_code => 500, body => repeat('x', 11), scope => 'finish-error', token => :token);
$$, :error_token);
SELECT status FROM idempotency.records WHERE scope = 'finish-error';
SELECT idem_complete('body', 200, repeat('x', 10), scope => 'finish-error', token => :error_token);
SELECT idem_complete('body', 200, repeat('x', 11), scope => 'finish-omit', token => :omit_token);
SELECT test.seen(c) FROM idem_begin('body', scope => 'finish-error') c;
SELECT test.seen(c) FROM idem_begin('body', scope => 'finish-omit') c;
-- The limit counts bytes, not characters, and holds for headers and state as well, which can't be left out. An
-- error is never refused: it is kept up to 64 kB, cut between characters.
SELECT token FROM idem_begin('other', scope => 'finish-omit') \gset omit_
\set VERBOSITY sqlstate
SELECT idem_complete('other', 200, NULL, '{"X-Long": "xxxxxxxxxx"}', 'finish-omit', token => :omit_token);
\set VERBOSITY default
BEGIN;
SELECT idem_fail('other', repeat(U&'\00e9', 40000), scope => 'finish-omit', token => :omit_token);
SELECT length(error) FROM idem_begin('other', scope => 'finish-omit');
ROLLBACK;
SELECT idem_checkpoint('other', 'here', '"xxxxxxxxxxx"', 'finish-omit', token => :omit_token);
\echo :SQLSTATE
SELECT idem_complete('other', 200, repeat(U&'\00e9', 6), scope => 'finish-omit', token => :omit_token);
SELECT body_omitted FROM idem_begin('other', scope => 'finish-omit');
SELECT idem_policy_drop('finish-error'), idem_policy_drop('finish-omit');
-- Without a policy the setting counts.
SET idempotency.max_body_bytes = 3;
BEGIN;
SELECT outcome FROM idem_begin('setting', scope => 'finish');
SAVEPOINT s;
SELECT idem_complete('setting', 200, 'four', scope => 'finish');
ROLLBACK TO s;
SELECT idem_complete('setting', 200, 'two', scope => 'finish');
COMMIT;
RESET idempotency.max_body_bytes;

-- A ttl given on completing counts from the claim, and the key is remembered at least as long.
SELECT token FROM idem_begin('ttl', scope => 'finish', ttl => '1 hour') \gset ttl_
SELECT idem_complete('ttl', 200, scope => 'finish', token => :ttl_token, ttl => '48 hours');
SELECT expires_at - claimed_at AS ttl, retained_until - claimed_at AS retention
  FROM idempotency.records WHERE (scope, key) = ('finish', 'ttl');
SELECT token FROM idem_begin('short', scope => 'finish', ttl => '48 hours') \gset ttl_
SELECT idem_complete('short', 200, scope => 'finish', token => :ttl_token, ttl => '1 hour');
SELECT expires_at - claimed_at AS ttl, retained_until - claimed_at AS retention
  FROM idempotency.records WHERE (scope, key) = ('finish', 'short');

-- The transaction that has ended another one's claim by its token has to pass it again.
SELECT token FROM idem_begin('doubted', scope => 'finish') \gset doubt_
BEGIN;
SELECT idem_unknown('doubted', scope => 'finish', token => :doubt_token);
SELECT idem_fail('doubted', scope => 'finish');
ROLLBACK;
