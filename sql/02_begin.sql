-- Promise: idem_begin gives each row of the outcome table its answer, never raises for a duplicate,
-- and shows each caller only its own data.
\a\pset footer off

-- A wait that should not be there ends as an error.
SET statement_timeout = '30 s';

-- No record: execute, attempt 1, and nothing is left by a rollback.
BEGIN;
SELECT test.seen(c) FROM idem_begin('none', '{"amount": 5}', 'begin', 'shop', holder => 'worker-1') c;
-- The same transaction asks again: its own claim runs. There is nothing to wait for.
SELECT test.seen(c) FROM idem_begin('none', '{"amount": 5}', 'begin', 'shop', wait => '1 hour') c;
SELECT test.seen(c) FROM idem_begin('none', '{"amount": 6}', 'begin', 'shop') c;
SELECT idem_complete('none', 201, 'made', scope => 'begin', principal => 'shop');
SELECT test.seen(c) FROM idem_begin('none', '{"amount": 5}', 'begin', 'shop') c;
ROLLBACK;
SELECT count(*) FROM idempotency.records WHERE scope = 'begin';

-- In progress, lease valid: the holder and the time to retry, but no token.
SELECT test.seen(c) FROM idem_begin('leased', scope => 'begin', lease => '1 minute', holder => 'worker-1') c;
SELECT test.seen(c) FROM idem_begin('leased', scope => 'begin', holder => 'worker-2') c;
SELECT retry_after > 50 AND retry_after <= 60 AS retry_after_is_the_rest_of_the_lease,
       lease_until > now(), created_at <= now(), expires_at > now() + interval '23 h'
  FROM idem_begin('leased', scope => 'begin');
-- A waiter gets the same answer when its wait ends.
SELECT clock_timestamp() AS started \gset
SELECT outcome, clock_timestamp() - :'started' >= interval '30 ms' AS waited
  FROM idem_begin('leased', scope => 'begin', wait => '30 ms');
-- A loser keeps no lock, and its transaction goes on.
BEGIN;
SELECT outcome FROM idem_begin('leased', scope => 'begin');
SELECT * FROM test.locks();
COMMIT;
-- Nor does a session that has just executed, and takes the lock before it looks.
BEGIN;
SELECT outcome FROM idem_begin('guessed', scope => 'begin');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_begin('leased', scope => 'begin');
SELECT * FROM test.locks();
COMMIT;

-- Lease over: taken over, with the last recovery point and state. The old token is fenced off.
SELECT token AS first_token, created_at AS first_created, lease_until AS first_lease
  FROM idem_begin('taken', '{"amount": 5}', 'begin', lease => '1 minute', holder => 'worker-1') \gset
SELECT idem_checkpoint('taken', 'charged', '{"charge": "ch_1"}', 'begin', token => :first_token,
                       lease => '1 minute') > :'first_lease' AS prolonged;
SELECT test.let_pass('2 minutes', 'begin');
BEGIN;
SELECT test.seen(c), token > :first_token AS newer_token,
       created_at = :'first_created'::timestamptz - interval '2 minutes' AS first_claim_kept
  FROM idem_begin('taken', '{"amount": 5}', 'begin', holder => 'worker-2') c;
ROLLBACK;
-- A rolled back takeover has not happened: the next one is the second attempt again.
SELECT outcome, attempt FROM idem_begin('taken', '{"amount": 5}', 'begin');
SELECT test.let_pass('2 minutes', 'begin');
SELECT outcome, attempt FROM idem_begin('taken', '{"amount": 5}', 'begin');
-- The boundary: at its end the lease has expired.
SELECT outcome FROM idem_begin('boundary', scope => 'begin');
UPDATE idempotency.record SET lease_until = now() WHERE (scope, key) = ('begin', 'boundary');
SELECT outcome, attempt FROM idem_begin('boundary', scope => 'begin');

-- Lease over, and the policy forbids to run again blindly: unknown until resolved.
SELECT idem_policy_set('begin-unknown', on_lease_expiry => 'unknown');
SELECT token AS silent FROM idem_begin('silent', '{"amount": 5}', 'begin-unknown') \gset
SELECT test.let_pass('2 minutes', 'begin-unknown');
SELECT test.seen(c) FROM idem_begin('silent', '{"amount": 5}', 'begin-unknown') c;
SELECT status FROM idempotency.records WHERE scope = 'begin-unknown';
-- It was promised at the claim, so it stays so under another policy, and when ttl and retention are over.
SELECT idem_policy_drop('begin-unknown', 'a test');
SELECT test.let_pass('1 year', 'begin-unknown');
SELECT test.seen(c) FROM idem_begin('silent', '{"amount": 5}', 'begin-unknown') c;
-- The late holder may still record its result.
SELECT idem_complete('silent', 200, scope => 'begin-unknown', token => :silent);
SELECT status FROM idempotency.records WHERE scope = 'begin-unknown';

-- Retryable: before its time, when due, and when the attempts are used up.
SELECT idem_policy_set('begin-retry', max_attempts => 2);
BEGIN;
SELECT outcome FROM idem_begin('retry', '{"amount": 5}', 'begin-retry');
SELECT idem_fail('retry', 'bank is down', true, 503, scope => 'begin-retry', retry_after => '1 hour');
COMMIT;
SELECT test.seen(c) FROM idem_begin('retry', '{"amount": 5}', 'begin-retry') c;
SELECT retry_after > 59 * 60 AND retry_after <= 3600 AS retry_after_is_the_rest
  FROM idem_begin('retry', scope => 'begin-retry');
SELECT test.let_pass('1 hour', 'begin-retry');
BEGIN;
SELECT test.seen(c) FROM idem_begin('retry', '{"amount": 5}', 'begin-retry') c;
SELECT idem_fail('retry', 'bank is still down', true, scope => 'begin-retry', retry_after => '1 hour');
COMMIT;
SELECT test.seen(c) FROM idem_begin('retry', '{"amount": 5}', 'begin-retry') c;
SELECT idem_policy_drop('begin-retry');

-- Completed and failed: replayed as stored, to every caller with the same request.
BEGIN;
SELECT outcome FROM idem_begin('done', '{"amount": 5}', 'begin', holder => 'worker-1');
SELECT idem_complete('done', 201, 'made', '{"Location": "/payments/1"}', 'begin');
COMMIT;
BEGIN;
SELECT outcome FROM idem_begin('refused', '{"amount": 5}', 'begin');
SELECT idem_fail('refused', 'card declined', status_code => 402, body => 'no', scope => 'begin');
COMMIT;
SELECT test.seen(c) FROM idem_begin('done', '{"amount": 5}', 'begin') c;
SELECT test.seen(c) FROM idem_begin('refused', '{"amount": 5}', 'begin') c;
-- A replay takes no lock and no transaction id.
BEGIN;
SELECT outcome FROM idem_begin('done', '{"amount": 5}', 'begin');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id, * FROM test.locks();
COMMIT;

-- Mismatch, whatever the state. It shows nothing of the other request's result and changes nothing.
SELECT key, outcome FROM unnest('{m-progress,m-silent,m-retryable,m-completed,m-failed,m-unknown}'::text[]) k,
       idem_begin(k, '{"amount": 5}', 'begin-mismatch', holder => 'worker-1');
SELECT idem_checkpoint(key, 'secret', '{}', scope, token => token) > now() AS written
  FROM idempotency.record WHERE scope = 'begin-mismatch';
UPDATE idempotency.record SET lease_until = now() WHERE (scope, key) = ('begin-mismatch', 'm-silent');
UPDATE idempotency.record SET lease_until = now(), if_silent = 'u' WHERE (scope, key) = ('begin-mismatch', 'm-unknown');
SELECT idem_fail(key, 'later', true, scope => scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('begin-mismatch', 'm-retryable');
SELECT idem_complete(key, 201, 'secret', '{"X-Secret": "1"}', scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('begin-mismatch', 'm-completed');
SELECT idem_fail(key, 'secret', false, 402, 'secret', scope => scope, token => token)
  FROM idempotency.record WHERE (scope, key) = ('begin-mismatch', 'm-failed');
SELECT test.stored() AS before \gset
SELECT key, outcome, num_nonnulls(token, status_code, headers, body, body_omitted, error, recovery_point, state) AS shown
  FROM unnest('{m-progress,m-silent,m-retryable,m-completed,m-failed,m-unknown}'::text[]) k,
       idem_begin(k, '{"amount": 6}', 'begin-mismatch');
SELECT test.stored() = :'before' AS unchanged;
-- A fingerprint given as such counts like one of a request; with none there is no mismatch.
SELECT outcome FROM idem_begin('m-completed', scope => 'begin-mismatch', fingerprint => '\xaa');
SELECT outcome FROM idem_begin('m-completed', scope => 'begin-mismatch',
                               fingerprint => idem_fingerprint('{"amount": 5}'));
SELECT outcome FROM idem_begin('m-completed', scope => 'begin-mismatch');
-- A claim begun without a fingerprint fits every request until one is known.
SELECT outcome FROM idem_begin('m-none', scope => 'begin-mismatch');
SELECT outcome FROM idem_begin('m-none', '{"amount": 6}', 'begin-mismatch');

-- Between ttl and retention: refused, never run again. Past retention: a new request.
BEGIN;
SELECT outcome FROM idem_begin('c', '{"amount": 5}', 'begin-old', ttl => '1 hour');
SELECT idem_complete('c', 201, 'made', scope => 'begin-old');
SELECT outcome FROM idem_begin('f', '{"amount": 5}', 'begin-old', ttl => '1 hour');
SELECT idem_fail('f', 'card declined', scope => 'begin-old');
SELECT outcome FROM idem_begin('r', '{"amount": 5}', 'begin-old', ttl => '1 hour');
SELECT idem_fail('r', 'bank is down', true, scope => 'begin-old', retry_after => '0');
COMMIT;
UPDATE idempotency.record SET retained_until = expires_at + interval '1 hour' WHERE scope = 'begin-old';
SELECT test.let_pass('1 hour', 'begin-old');
SELECT test.seen(c) FROM unnest('{c,f,r}'::text[]) k, idem_begin(k, '{"amount": 5}', 'begin-old') c;
-- The key is no longer bound to its payload, but another one is not run under it either.
SELECT outcome FROM idem_begin('c', '{"amount": 6}', 'begin-old');
SELECT max(token) AS old_token FROM idempotency.record WHERE scope = 'begin-old' \gset
-- (In one transaction, so that no sweeper comes by.)
BEGIN;
SELECT test.let_pass('1 hour', 'begin-old');
SELECT test.seen(c), token > :old_token AS newer_token, created_at > now() - interval '1 min' AS anew
  FROM unnest('{c,f,r}'::text[]) k, idem_begin(k, '{"amount": 6}', 'begin-old') c;
COMMIT;

-- A request first sent before our memory begins is refused: its effect may have been forgotten.
SELECT test.seen(c) FROM idem_begin('late', scope => 'begin', first_sent => now() - interval '25 h') c;
SELECT outcome FROM idem_begin('late', scope => 'begin', first_sent => now() - interval '23 h');
-- As long as its record is there, it is answered.
SELECT outcome FROM idem_begin('done', scope => 'begin', first_sent => now() - interval '25 h');

-- Without a key one is made up, a UUID of version 7, and the request is never a duplicate.
SELECT outcome, key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS uuid,
       abs(extract(epoch FROM clock_timestamp()) * 1000
           - ('x' || translate(left(key, 13), '-', ''))::bit(48)::bigint) < 60000 AS of_now
  FROM idem_begin(NULL, '{"amount": 5}', 'begin-generated');
SELECT outcome FROM idem_begin(NULL, '{"amount": 5}', 'begin-generated');
SELECT count(DISTINCT key) FROM idempotency.records WHERE scope = 'begin-generated';

-- Scope, principal and key are one identity, compared byte by byte and never trimmed.
SELECT principal, scope, key, outcome
  FROM (VALUES ('k', 'begin-id', ''), ('k', 'begin-id', 'shop'), ('k', 'begin-idx', ''),
               ('K', 'begin-id', ''), (' k', 'begin-id', ''), ('k ', 'begin-id', ''),
               ('k', 'begin-id', 'SHOP'), (U&'\00e9', 'begin-id', ''), (U&'e\0301', 'begin-id', ''),
               ('k', 'begin-id', '')) v (k, s, p),
       idem_begin(k, scope => s, principal => p);
