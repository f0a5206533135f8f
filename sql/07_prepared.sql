-- Promise: PREPARE TRANSACTION carries a claim, open or completed. Until the transaction ends, the key is
-- in progress. COMMIT PREPARED publishes the claim, and ROLLBACK PREPARED frees the key.
\a\pset footer off
-- A wait that should not be there ends as an error.
SET statement_timeout = '30 s';

-- Completed, then committed.
BEGIN;
SELECT outcome FROM idem_begin('completed', '{"amount": 5}', 'prepared');
SELECT idem_complete('completed', 201, 'made', scope => 'prepared');
PREPARE TRANSACTION 'idem completed';
-- Meanwhile other sessions only see that the key is in progress: not even a mismatch.
SELECT test.seen(c) FROM idem_begin('completed', '{"amount": 5}', 'prepared') c;
SELECT test.seen(c) FROM idem_begin('completed', '{"amount": 6}', 'prepared', wait => '10 ms') c;
SELECT idem_get('completed', 'prepared') IS NULL AS absent;
SELECT idem_once('completed', 'prepared', wait => '10 ms');
\echo :SQLSTATE
COMMIT PREPARED 'idem completed';
SELECT test.seen(c) FROM idem_begin('completed', '{"amount": 5}', 'prepared') c;
SELECT outcome FROM idem_begin('completed', '{"amount": 6}', 'prepared');

-- Completed, then rolled back.
BEGIN;
SELECT outcome FROM idem_begin('rolled back', '{"amount": 5}', 'prepared');
SELECT idem_complete('rolled back', 201, 'made', scope => 'prepared');
PREPARE TRANSACTION 'idem rolled back';
SELECT outcome FROM idem_begin('rolled back', '{"amount": 5}', 'prepared');
ROLLBACK PREPARED 'idem rolled back';
BEGIN;
SELECT outcome, attempt FROM idem_begin('rolled back', '{"amount": 6}', 'prepared');
SELECT idem_complete('rolled back', 201, 'anew', scope => 'prepared');
COMMIT;
SELECT test.seen(c) FROM idem_begin('rolled back', '{"amount": 6}', 'prepared') c;

-- Still open: after COMMIT PREPARED it is leased, and its token is good.
BEGIN;
SELECT token FROM idem_begin('open', '{"amount": 5}', 'prepared', holder => 'worker-1') \gset
SELECT idem_checkpoint('open', 'reserved', '{"seat": "12A"}', 'prepared') > now() AS written;
PREPARE TRANSACTION 'idem open';
SELECT test.seen(c) FROM idem_begin('open', '{"amount": 5}', 'prepared') c;
-- Another transaction can't end it meanwhile, not even with the token: it would wait.
SET lock_timeout = '10 ms';
SELECT * FROM refused($$
SELECT idem_complete('open', 200, scope => 'prepared', token => :token);
SELECT idem_forget('open', 'prepared');
$$, :token);
RESET lock_timeout;
COMMIT PREPARED 'idem open';
SELECT test.seen(c) FROM idem_begin('open', '{"amount": 5}', 'prepared') c;
SELECT test.seen(c) FROM idem_get('open', 'prepared') c;
SELECT idem_complete('open', 200, 'late', scope => 'prepared', token => :token);
SELECT outcome FROM idem_begin('open', '{"amount": 5}', 'prepared');

-- Still open, then rolled back: the key is free at once, without a lease to wait out.
BEGIN;
SELECT token FROM idem_begin('dropped', scope => 'prepared') \gset
PREPARE TRANSACTION 'idem dropped';
SELECT outcome FROM idem_begin('dropped', scope => 'prepared');
ROLLBACK PREPARED 'idem dropped';
SELECT idem_complete('dropped', 200, scope => 'prepared', token => :token);
\echo :SQLSTATE
SELECT outcome, attempt FROM idem_begin('dropped', scope => 'prepared');

-- A takeover, rolled back: the old holder's token is good again.
SELECT token AS old FROM idem_begin('taken', scope => 'prepared') \gset
SELECT test.let_pass('1 hour', 'prepared');
BEGIN;
SELECT outcome, attempt FROM idem_begin('taken', scope => 'prepared');
PREPARE TRANSACTION 'idem taken';
SELECT outcome FROM idem_begin('taken', scope => 'prepared');
ROLLBACK PREPARED 'idem taken';
SELECT idem_complete('taken', 200, scope => 'prepared', token => :old);

-- Savepoints, shortcuts and many claims in one prepared transaction.
BEGIN;
SELECT idem_once('once', 'prepared');
SAVEPOINT s;
SELECT outcome FROM idem_begin('undone', scope => 'prepared');
ROLLBACK TO s;
SELECT outcome FROM idem_begin('released', scope => 'prepared');
SELECT idem_release('released', 'prepared');
SELECT outcome FROM idem_begin('failed', scope => 'prepared');
SELECT idem_fail('failed', 'declined', scope => 'prepared');
PREPARE TRANSACTION 'idem many';
SELECT key, outcome FROM unnest('{once,undone,failed}'::text[]) k, idem_begin(k, scope => 'prepared');
-- A released key is free at the end, because the transaction has written something.
SELECT outcome FROM idem_begin('released', scope => 'prepared');
COMMIT PREPARED 'idem many';
SELECT key, outcome FROM unnest('{once,undone,failed}'::text[]) k, idem_begin(k, scope => 'prepared');
SELECT outcome FROM idem_begin('released', scope => 'prepared');

-- hold: the session that prepared it stays the sign of life until the claim ends.
BEGIN;
SELECT token FROM idem_begin('held', scope => 'prepared', hold => true) \gset
PREPARE TRANSACTION 'idem held';
COMMIT PREPARED 'idem held';
SELECT pid = pg_backend_pid() AS this_one FROM idempotency.in_flight WHERE (scope, key) = ('prepared', 'held');
SELECT outcome FROM idem_begin('held', scope => 'prepared');
SELECT idem_complete('held', scope => 'prepared', token => :token);
SELECT count(*) FROM pg_prepared_xacts;
