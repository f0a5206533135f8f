-- Promise: idem_claim_due grants the records that are due, oldest first, and no others; a worker's right is
-- one of its own.
\a\pset footer off

CREATE VIEW due AS SELECT d.key, d.scope, d.principal, d.attempt, d.token > 0 AS token FROM idem_claim_due('due/a', 10) d;
-- Makes a record that is retryable: due since so long ago.
CREATE FUNCTION test.retryable(key text, since interval, scope text DEFAULT 'due/a', principal text DEFAULT '') RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin(key, jsonb_build_object('of', key), scope, principal, method => 'POST', path => '/' || key);
    PERFORM idem_fail(key, 'not yet', retryable => true, scope => scope, principal => principal, retry_after => '0');
    UPDATE idempotency.record r SET next_attempt_at = clock_timestamp() - since
     WHERE r.key = retryable.key AND r.scope = retryable.scope AND r.principal = retryable.principal;
END $$;
-- A request that is executed puts no entry into the index of what is due: it has no page but its first.
TRUNCATE idempotency.record;
CREATE VIEW index_of_due AS SELECT pg_relation_size('idempotency.record_due') / current_setting('block_size')::integer AS pages;
SELECT (idem_begin('plain', scope => 'due/p')).outcome, idem_complete('plain', 200, 'x', scope => 'due/p'), idem_once('plain once', 'due/p');
BEGIN;
SELECT outcome FROM idem_begin('in one', scope => 'due/p');
SELECT idem_complete('in one', 200, 'x', scope => 'due/p');
COMMIT;
SELECT pages FROM index_of_due;
BEGIN;
SELECT outcome FROM idem_begin('fails', scope => 'due/p');
SELECT idem_fail('fails', 'no', retryable => true, scope => 'due/p');
COMMIT;
SELECT pages > 1 AS more FROM index_of_due;
DELETE FROM idempotency.record;

SELECT idem_policy_set('due/*', store_request => true, retry_base => '0');

SELECT test.retryable('old', '3 s'), test.retryable('new', '1 s'), test.retryable('later', '-1 hour'),
       test.retryable('middle', '2 s', principal => 'tenant'), test.retryable('elsewhere', '9 s', 'due/b');
SELECT (idem_begin('done', scope => 'due/a')).outcome, idem_complete('done', 200, 'x', scope => 'due/a');
SELECT (idem_begin('failed', scope => 'due/a')).outcome, idem_fail('failed', 'no', scope => 'due/a');
SELECT (idem_begin('unknown', scope => 'due/a')).outcome, idem_unknown('unknown', 'no', scope => 'due/a');
SELECT scope, records, oldest < now() AS past, age > '0' AS aged, node FROM idempotency.due WHERE scope LIKE 'due/%' ORDER BY 1;
-- As many as are asked for, oldest first, and once. What a call needs comes with the claim.
SELECT key, scope, principal, attempt, operation, method, path, request, error, created_at IS NOT NULL AS created,
       lease_until > now() + '29 s' AS leased
  FROM idem_claim_due('due/a', 2, '30 s', 'w1');
SELECT * FROM due;
SELECT * FROM due;
SELECT key, holder, status FROM idempotency.records WHERE scope = 'due/a' AND holder IS NOT NULL ORDER BY 1;
-- By a pattern.
SELECT key, scope FROM idem_claim_due('due/*', 10);
SELECT key, scope FROM idem_claim_due('*', 10) WHERE scope LIKE 'due/%';

-- A claim whose lease has expired, and none that lives, nor one that is unknown then.
SELECT idem_policy_set('due/u', on_lease_expiry => 'unknown');
SELECT v.key, outcome FROM (VALUES ('short', 'due/a', '1 ms'), ('long', 'due/a', '1 hour'), ('silent', 'due/u', '1 ms')) v (key, scope, lease),
       idem_begin(v.key, '{"n": 1}', v.scope, lease => v.lease::interval);
SELECT pg_sleep(0.01) \gset
SELECT key, attempt, request FROM idem_claim_due('due/*', 10);
-- It goes on where the last attempt stopped, and ends as any other.
SELECT token FROM idem_begin('point', '{"n": 1}', 'due/a', lease => '1 hour') \gset
SELECT idem_checkpoint('point', 'charged', '{"id": 7}', 'due/a', token => :token, lease => '1 ms') IS NOT NULL AS noted;
SELECT pg_sleep(0.01) \gset
BEGIN;
SELECT key, attempt, recovery_point, state, token FROM idem_claim_due('due/a') \gset
SELECT :'key', :'attempt', :'recovery_point', :'state', idem_complete(:'key', 200, 'ok', scope => 'due/a');
COMMIT;
SELECT outcome, convert_from(body, 'UTF8') FROM idem_begin('point', '{"n": 1}', 'due/a');

-- A rollback gives back. So does a savepoint.
SELECT test.retryable('back', '1 s');
BEGIN;
SELECT * FROM due;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT key FROM idem_claim_due('due/a');
ROLLBACK TO s;
SELECT key FROM idem_claim_due('due/a');
SELECT key FROM idem_claim_due('due/a');
SELECT idem_fail('back', 'again', retryable => true, scope => 'due/a', retry_after => '1 hour');
COMMIT;
SELECT * FROM due;

-- Attempts and pauses count as everywhere.
SELECT idem_policy_alter('due/*', max_attempts => 3, retry_base => '1 hour', retry_cap => '1 hour', retry_jitter => 'none');
SELECT test.retryable('tries', '1 s');
SELECT attempt FROM idem_claim_due('due/a');
SELECT idem_fail('tries', 'no', retryable => true, scope => 'due/a', token => (SELECT token FROM idempotency.record WHERE key = 'tries'));
SELECT * FROM due;
SELECT status, next_attempt_at > now() + '59 min' AS paused FROM idempotency.records WHERE key = 'tries';
UPDATE idempotency.record SET next_attempt_at = now() WHERE key = 'tries';
SELECT attempt FROM idem_claim_due('due/a', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SELECT * FROM due;
SELECT status FROM idempotency.records WHERE key = 'tries';
-- Past its ttl a record is not repeated.
SELECT test.retryable('too late', '1 s');
UPDATE idempotency.record SET expires_at = clock_timestamp() WHERE key = 'too late';
SELECT * FROM due;
-- A worker gives no ttl: that of the caller counts on, so that no repeat of the caller's is executed once more.
BEGIN;
SELECT outcome FROM idem_begin('month', scope => 'due/m', ttl => '30 days');
SELECT idem_fail('month', 'no', retryable => true, scope => 'due/m', retry_after => '0');
COMMIT;
BEGIN;
SELECT key FROM idem_claim_due('due/m');
SELECT idem_complete('month', 200, 'x', scope => 'due/m');
COMMIT;
SELECT extract(day FROM expires_at - claimed_at) AS ttl, extract(day FROM retained_until - claimed_at) AS memory
  FROM idempotency.record WHERE key = 'month';
UPDATE idempotency.record r SET claimed_at = r.claimed_at - a, expires_at = r.expires_at - a, retained_until = r.retained_until - a,
       created_at = r.created_at - a, finished_at = r.finished_at - a FROM CAST('2 days' AS interval) a WHERE key = 'month';
-- Two days later.
SELECT outcome FROM idem_begin('month', scope => 'due/m', ttl => '30 days');
-- So it is after a lease.
SELECT outcome FROM idem_begin('silent month', scope => 'due/m', ttl => '30 days', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SELECT key FROM idem_claim_due('due/m');
SELECT extract(day FROM expires_at - claimed_at) AS ttl, extract(day FROM retained_until - claimed_at) AS memory
  FROM idempotency.record WHERE key = 'silent month';

-- idem_explain says since when, or from when on, a record is due.
SELECT test.retryable('explained', '1 s'), test.retryable('soon', '-1 hour');
SELECT key, (record ->> 'due_at')::timestamptz < now() AS due FROM unnest('{explained,soon,tries,long,done,too late}'::text[]) k, idem_explain(k, scope => 'due/a');
SELECT key FROM idem_claim_due('due/a');
-- A claim on a derived key is not taken over after the window of the key, and is not counted.
SELECT idem_policy_set('due/d', on_missing_key => 'derive', derive_window => '1 min');
SELECT outcome FROM idem_begin(NULL, '{"n": 1}', 'due/d', lease => '1 ms');
CREATE VIEW silent AS SELECT (e.record ->> 'due_at')::timestamptz < now() AS due, d.records
  FROM idempotency.record r CROSS JOIN idem_explain(r.key, scope => 'due/d') e LEFT JOIN idempotency.due d ON d.scope = r.scope WHERE r.scope = 'due/d';
SELECT test.let_pass('50 s', 'due/d');
SELECT * FROM silent;
SELECT test.let_pass('10 s', 'due/d');
SELECT * FROM silent;
SELECT count(*) FROM idem_claim_due('due/d');
DROP VIEW silent;
-- A record without a principal is passed over once the policy requires one.
SELECT test.retryable('unnamed', '1 s', 'due/n'), test.retryable('named', '1 s', 'due/n', 'p');
SELECT idem_policy_set('due/n', principal_required => true);
SELECT key FROM idem_claim_due('due/n', 10);

-- The view counts what a worker may get by the policy of now: not where max_attempts is lower than it was, unless
-- an operator has allowed one more, and not where a takeover is forbidden.
SELECT idem_policy_set('now/*', retry_base => '0', retry_cap => '0');
SELECT test.retryable('twice', '1 s', 'now/low'), test.retryable('twice', '1 s', 'now/low'), test.retryable('new', '2 s', 'now/low'),
       test.retryable('twice', '1 s', 'now/more'), test.retryable('twice', '1 s', 'now/more');
SELECT outcome FROM idem_begin('silent', scope => 'now/low', lease => '1 ms');
SELECT pg_sleep(0.01) \gset
SELECT scope, records FROM idempotency.due WHERE scope LIKE 'now/%' ORDER BY 1;
SELECT idem_policy_alter('now/*', max_attempts => 2);
SELECT idem_resolve('twice', 'release', 'now/more', reason => 'once more');
SELECT scope, records FROM idempotency.due WHERE scope LIKE 'now/%' ORDER BY 1;
SELECT idem_policy_alter('now/*', on_lease_expiry => 'unknown');
SELECT scope, records, age > '1 s' OR scope <> 'now/low' AS of_the_oldest FROM idempotency.due WHERE scope LIKE 'now/%' ORDER BY 1;
SELECT key, scope FROM idem_claim_due('now/*', 10);
SELECT scope, records FROM idempotency.due WHERE scope LIKE 'now/%';

-- A principal has no more claims than its policy allows.
SELECT idem_policy_alter('due/*', max_open_claims => 1);
SELECT test.retryable('p1', '2 s', 'due/c', 'p'), test.retryable('p2', '1 s', 'due/c', 'p'), test.retryable('q1', '1 s', 'due/c', 'q');
SELECT key FROM idem_claim_due('due/c', 10);
SELECT key FROM idem_claim_due('due/c', 10);
-- What is passed over keeps no lock, however much it is, and what is behind it is reached.
INSERT INTO idempotency.record (scope, principal, key, status, attempt, token, lease_us, created_at, claimed_at, expires_at,
    retained_until, next_attempt_at, finished_at)
SELECT 'due/f', CASE WHEN n <= 1000 THEN 'full' ELSE 'other' END, 'f' || n, 'r', 1, n, 1, t, t, t + '2 days', t + '2 days', t, t
  FROM generate_series(1, 1001) n, CAST(now() + (n - 3600000) * interval '1 ms' AS timestamptz) t;
SELECT key FROM idem_claim_due('due/f', lease => '1 hour');
CREATE VIEW looks AS SELECT sum(pg_stat_get_xact_numscans(indexrelid)) AS n FROM pg_index WHERE indrelid = 'idempotency.record'::regclass;
BEGIN;
SELECT n AS before FROM looks \gset
SELECT key FROM idem_claim_due('due/f', 10);
SELECT key FROM idem_claim_due('due/f', 10);
SELECT n - :before < 500 AS few_looks FROM looks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 18756 AND pid = pg_backend_pid();
ROLLBACK;
DELETE FROM idempotency.record WHERE scope = 'due/f';
SELECT idem_policy_alter('due/*', unset => '{max_open_claims}');
SELECT key FROM idem_claim_due('due/c', 10);

-- A claim of a transactional scope ends in its transaction. A call with a lease passes such scopes over, and
-- serves the others.
SELECT idem_policy_set('mix/*', retry_base => '0'), idem_policy_set('mix/t', transactional_only => true);
SELECT test.retryable('t', '2 s', 'mix/t'), test.retryable('beside', '1 s', 'mix/a');
SELECT key FROM idem_claim_due('mix/*', 10, '1 hour');
SELECT key FROM idem_claim_due('mix/t', lease => '1 hour');
SELECT key FROM idem_claim_due('mix/t');
BEGIN;
SELECT key FROM idem_claim_due('mix/*', 10);
SELECT idem_complete('t', 200, scope => 'mix/t');
COMMIT;
-- It says so only while something is due there.
SELECT key FROM idem_claim_due('mix/t', lease => '1 hour');
SELECT key, status FROM idempotency.records WHERE scope LIKE 'mix/%' ORDER BY 1;

-- A right of its own: neither the protocol nor the right of an operator has it, and it has the protocol.
CREATE ROLE regress_worker;
CREATE ROLE regress_other;
CREATE ROLE regress_vault;
SELECT idem_grant('regress_worker', worker => true), idem_grant('regress_other', operator => true, administrator => true);
SELECT idem_policy_set('due/v', allowed_role => 'regress_vault'), test.retryable('mine', '1 s');
RESET ROLE;
GRANT regress_vault TO CURRENT_USER;
SELECT test.retryable('closed', '1 s', 'due/v');
SET ROLE regress_other;
SELECT * FROM refused($$SELECT * FROM idem_claim_due('due/a')$$);
SET ROLE regress_worker;
SELECT * FROM refused($$
SELECT idem_resolve('mine', 'fail', 'due/a');
SELECT idem_cleanup();
$$);
SELECT idem_once('w', 'due/a');
SELECT key FROM idem_claim_due('due/*', 10);
SELECT key FROM idem_claim_due('due/v', 10);
RESET ROLE;
SELECT key FROM idem_claim_due('due/v', 10);
SELECT idem_revoke('regress_worker'), idem_revoke('regress_other');
SELECT action, role, after FROM idempotency.decisions WHERE role = 'regress_worker' ORDER BY decided_at;

SELECT * FROM refused($$
SELECT * FROM idem_claim_due(NULL);
SELECT * FROM idem_claim_due('due/a', NULL);
SELECT * FROM idem_claim_due('due/a', 0);
SELECT * FROM idem_claim_due('due/a', 1001);
SELECT * FROM idem_claim_due('due/a', 2147483647);
SELECT * FROM idem_claim_due('due/a', 1, '-1 s');
SELECT * FROM idem_claim_due('due/a', 1, holder => '');
SELECT * FROM idem_claim_due(repeat('x', 256));
$$);
BEGIN READ ONLY;
SELECT * FROM refused($$SELECT * FROM idem_claim_due('due/a')$$);
ROLLBACK;

DELETE FROM idempotency.record WHERE scope LIKE 'due/%' OR scope LIKE 'mix/%' OR scope LIKE 'now/%';
TRUNCATE idempotency.policy, idempotency.audit;
DROP VIEW due, looks, index_of_due;
DROP FUNCTION test.retryable;
DROP ROLE regress_worker, regress_other, regress_vault;
