-- Promise: the protocol works in every isolation level. A transaction that can't write gets an error
-- instead of an answer that it could not keep. (Two callers: test/isolation.)
\a\pset footer off

-- Begin, complete and replay after a snapshot was taken.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM idempotency.records WHERE scope = 'levels';
SELECT outcome FROM idem_begin('repeatable', '{"amount": 5}', 'levels');
SELECT idem_complete('repeatable', 201, 'made', scope => 'levels');
SELECT test.seen(c) FROM idem_begin('repeatable', '{"amount": 5}', 'levels') c;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM idempotency.records WHERE scope = 'levels';
SELECT outcome FROM idem_begin('serializable', '{"amount": 5}', 'levels');
SELECT outcome FROM idem_begin('left open', '{"amount": 5}', 'levels');
SELECT idem_complete('serializable', 201, 'made', scope => 'levels');
SELECT test.seen(c) FROM idem_begin('serializable', '{"amount": 5}', 'levels') c;
SELECT idem_once('once', 'levels'), idem_once('once', 'levels');
COMMIT;

-- Replay, mismatch, in progress and takeover of committed records.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT test.seen(c) FROM idem_begin('serializable', '{"amount": 5}', 'levels') c;
SELECT outcome FROM idem_begin('serializable', '{"amount": 6}', 'levels');
SELECT outcome FROM idem_begin('left open', '{"amount": 5}', 'levels');
COMMIT;
SELECT token FROM idempotency.record WHERE (scope, key) = ('levels', 'left open') \gset
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_begin('repeatable', '{"amount": 5}', 'levels');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id;
SELECT idem_extend('left open', :token, scope => 'levels') > now() AS prolonged;
SELECT idem_checkpoint('left open', 'here', scope => 'levels', token => :token) > now() AS prolonged;
COMMIT;
SELECT test.let_pass('1 hour', 'levels');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT test.seen(c) FROM idem_begin('left open', '{"amount": 5}', 'levels') c;
SAVEPOINT s;
SELECT idem_complete('left open', scope => 'levels');
ROLLBACK TO s;
SELECT idem_fail('left open', 'failed', scope => 'levels');
COMMIT;
SELECT test.seen(c) FROM idem_begin('left open', '{"amount": 5}', 'levels') c;
SELECT status, count(*) FROM idempotency.records WHERE scope = 'levels' GROUP BY 1 ORDER BY 1;

-- READ ONLY: nothing can be promised, so nothing is. Looking is allowed.
SELECT token AS open_token FROM idem_begin('open', scope => 'levels') \gset
SELECT test.stored() AS before \gset
SET default_transaction_read_only = on;
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('new', scope => 'levels');
SELECT outcome FROM idem_begin('repeatable', scope => 'levels');
SELECT idem_complete('open', scope => 'levels', token => :token);
SELECT idem_fail('open', scope => 'levels', token => :token);
SELECT idem_extend('open', :token, scope => 'levels');
SELECT idem_checkpoint('open', 'here', scope => 'levels', token => :token);
SELECT idem_release('open', 'levels', token => :token);
SELECT idem_once('once', 'levels');
SELECT outcome FROM idem_execute('new', 'echo(jsonb)', scope => 'levels');
SELECT idem_resolve('open', 'release', 'levels');
SELECT idem_forget('open', 'levels');
SELECT idem_cleanup();
SELECT idem_policy_set('levels', ttl => '1 hour');
SELECT idem_policy_drop('levels');
SELECT idem_grant('pg_monitor');
SELECT idem_revoke('pg_monitor');
$$, :open_token);
SELECT test.seen(c) FROM idem_get('repeatable', 'levels') c;
SELECT test.seen(c) FROM idem_get('open', 'levels') c;
SELECT idem_get('new', 'levels') IS NULL AS absent;
RESET default_transaction_read_only;
SELECT test.stored() = :'before' AS unchanged;

-- A transaction that becomes read only after it has claimed can't end the claim by a call. What it was
-- allowed at the claim it is allowed at its end: other servers may have committed their part already.
BEGIN;
SELECT outcome FROM idem_begin('turned', scope => 'levels');
SET TRANSACTION READ ONLY;
SELECT idem_complete('turned', scope => 'levels');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_begin('turned', scope => 'levels');
SET TRANSACTION READ ONLY;
COMMIT;
\echo :SQLSTATE
SELECT count(*) FROM idempotency.records WHERE (scope, key) = ('levels', 'turned');
SELECT * FROM test.locks();
