-- Promise: idem_once_each returns each new key of an array once, in the order of the array, and answers for each
-- key as idem_once does.
\a\pset footer off

SELECT * FROM idem_once_each('{b,a,c,a,b}', 'each');
SELECT * FROM idem_once_each('{c,d,a,d}', 'each', principal => '');
SELECT idem_once('d', 'each') AS d, idem_once('e', 'each') AS e;
SELECT idem_once_each('{e,f}', 'each');
SELECT * FROM idem_once_each('{a}', 'each', 'another principal');
SELECT * FROM idem_once_each('{{q,a},{r,q}}', 'each', 'two dimensions');
SELECT * FROM idem_once_each('{}', 'each');
SELECT key, status, attempt, expires_at - claimed_at AS ttl FROM idempotency.records WHERE scope = 'each' AND principal = '' ORDER BY key;
SELECT * FROM idem_once_each('{short}', 'each', ttl => '1 minute');
SELECT expires_at - claimed_at AS ttl FROM idempotency.records WHERE key = 'short';
-- More keys than are written at a time, some of them known, in an order that is not theirs.
SELECT count(*) FROM idem_once_each(ARRAY(SELECT 'n' || n FROM generate_series(2, 600, 2) n), 'each');
SELECT count(*), min(substr(key, 2)::int % 2), string_agg(key, ' ') FILTER (WHERE place <= 3) AS first
  FROM idem_once_each(ARRAY(SELECT 'n' || n FROM generate_series(1000, 1, -1) n), 'each') WITH ORDINALITY k (key, place);
SELECT count(*) FROM idempotency.record WHERE scope = 'each' AND key ~ '^n' AND status = 'c';
CREATE EXTENSION amcheck;
SELECT count(bt_index_check(indexrelid, heapallindexed => true)::text) > 0 AS whole FROM pg_index WHERE indrelid = 'idempotency.record'::regclass;
DROP EXTENSION amcheck;
-- A rollback forgets them, as does one to a savepoint.
BEGIN;
SELECT * FROM idem_once_each('{x,y}', 'each');
SELECT * FROM idem_once_each('{x,y,z}', 'each');
SAVEPOINT s;
SELECT * FROM idem_once_each('{v,w,x}', 'each');
ROLLBACK TO s;
SELECT * FROM idem_once_each('{v,x}', 'each');
ROLLBACK;
SELECT * FROM idem_once_each('{v,w,x,y,z}', 'each');
-- Keys with a record of another kind.
SELECT (idem_begin('failed', scope => 'each')).outcome, idem_fail('failed', scope => 'each');
SELECT (idem_begin('again', scope => 'each')).outcome, idem_fail('again', retryable => true, retry_after => '0', scope => 'each');
SELECT (idem_begin('pause', scope => 'each')).outcome, idem_fail('pause', retryable => true, retry_after => '1 hour', scope => 'each');
SELECT (idem_begin('unknown', scope => 'each')).outcome, idem_unknown('unknown', scope => 'each');
SELECT (idem_begin('leased', scope => 'each', lease => '1 hour')).outcome;
SELECT (idem_begin('over', scope => 'each', lease => '1 ms')).outcome;
SELECT (idem_begin('old', scope => 'each')).outcome, idem_complete('old', 200, 'x', scope => 'each');
UPDATE idempotency.record SET expires_at = now() - interval '1 s', retained_until = now() - interval '1 s' WHERE key = 'old';
SELECT pg_sleep(0.01) \gset
SELECT * FROM idem_once_each('{failed,again,over,old,new}', 'each');
SELECT * FROM refused($$
SELECT * FROM idem_once_each('{new 2,pause}', 'each');
SELECT * FROM idem_once_each('{new 2,unknown}', 'each');
SELECT * FROM idem_once_each('{new 2,leased}', 'each', wait => '0');
SELECT * FROM idem_once_each(NULL);
SELECT * FROM idem_once_each('{a,NULL}');
SELECT * FROM idem_once_each('{a,""}');
SELECT * FROM idem_once_each('{a}', NULL);
SELECT * FROM idem_once_each('{a}', 'each', NULL);
SELECT * FROM idem_once_each('{a}', 'each', ttl => '-1 s');
SELECT * FROM idem_once_each(ARRAY(SELECT n::text FROM generate_series(1, 1001) n));
$$);
-- Nothing of a refused call stays.
SELECT count(*) FROM idempotency.record WHERE key = 'new 2';
BEGIN;
SELECT (idem_begin('mine', scope => 'each')).outcome;
SELECT * FROM idem_once_each('{mine}', 'each');
ROLLBACK;
-- The policy counts.
SELECT idem_policy_set('each/*', principal_required => true, keep_history => true, ttl => '1 hour');
SELECT * FROM refused($$SELECT * FROM idem_once_each('{a}', 'each/h')$$);
SELECT * FROM idem_once_each('{a,b}', 'each/h', 'p');
SELECT key, how FROM idempotency.attempts WHERE scope = 'each/h' ORDER BY key;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM idem_once_each('{r1,r2}', 'each');
SELECT * FROM idem_once_each('{r2,r3}', 'each');
COMMIT;
BEGIN READ ONLY;
SELECT * FROM refused($$SELECT * FROM idem_once_each('{a}')$$);
ROLLBACK;

DELETE FROM idempotency.record WHERE scope LIKE 'each%';
DELETE FROM idempotency.attempt;
TRUNCATE idempotency.policy, idempotency.audit;
