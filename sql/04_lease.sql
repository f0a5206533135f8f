-- Promise: a claim that is still open at commit is leased: its token alone prolongs, marks progress,
-- ends or gives it back, and a holder that lost it can no longer write.
\a\pset footer off

-- The lease counts from the commit; with the SQL store, which writes at once, from the call.
BEGIN;
SELECT token FROM idem_begin('work', '{"amount": 5}', 'lease', lease => '1 minute') \gset
SELECT clock_timestamp() AS before_commit \gset
COMMIT;
SELECT status, (lease_until >= :'before_commit'::timestamptz + interval '1 min') = test.by_store(true, false) AS from_commit
  FROM idempotency.records WHERE (scope, key) = ('lease', 'work');

-- Heartbeat: from now, by default as long as the claim's lease was, or the one given last.
SELECT idem_extend('work', :token, scope => 'lease') - now() BETWEEN '50 s' AND '70 s' AS the_claims;
SELECT idem_extend('work', :token, '1 hour', 'lease') - now() BETWEEN '59 min' AND '61 min' AS an_hour;
SELECT idem_extend('work', :token, scope => 'lease') - now() BETWEEN '59 min' AND '61 min' AS the_last_given;

-- Checkpoint: the last one counts, with or without state, and prolongs as well.
SELECT idem_checkpoint('work', 'reserved', '{"seat": "12A"}', 'lease', token => :token) > now() AS prolonged;
SELECT idem_checkpoint('work', 'charged', scope => 'lease', token => :token, lease => '1 hour') - now()
       BETWEEN '59 min' AND '61 min' AS an_hour;
SELECT test.seen(c) FROM idem_get('work', 'lease') c;
SELECT test.seen(c) FROM idem_begin('work', '{"amount": 5}', 'lease') c;

-- A late heartbeat revives the claim until another caller has taken over.
SELECT test.let_pass('2 hours', 'lease');
SELECT idem_extend('work', :token, scope => 'lease') > now() AS revived;
SELECT outcome FROM idem_begin('work', '{"amount": 5}', 'lease');
-- And a late completion is accepted: its effect has happened.
SELECT test.let_pass('2 hours', 'lease');
SELECT idem_complete('work', 201, 'made', scope => 'lease', token => :token);
SELECT test.seen(c) FROM idem_begin('work', '{"amount": 5}', 'lease') c;
SELECT recovery_point, state FROM idempotency.records WHERE (scope, key) = ('lease', 'work');
-- Work that took longer than its answer would have been kept: who waited for it still gets it.
SELECT token FROM idem_begin('long', scope => 'lease-long', ttl => '1 hour') \gset
SELECT test.let_pass('2 hours', 'lease-long');
SELECT idem_complete('long', 200, scope => 'lease-long', token => :token);
SELECT outcome, expires_at - now() BETWEEN '59 min' AND '61 min' AS kept_from_its_end FROM idem_begin('long', scope => 'lease-long');

-- Signs of life before the claim is committed: they are written with it.
BEGIN;
SELECT token FROM idem_begin('signs', scope => 'lease', lease => '1 minute') \gset
SELECT idem_checkpoint('signs', 'reserved', scope => 'lease') - now() BETWEEN '50 s' AND '70 s' AS the_default;
SELECT idem_extend('signs', :token, '1 hour', 'lease') - now() BETWEEN '59 min' AND '61 min' AS an_hour;
COMMIT;
SELECT recovery_point, lease_until - now() BETWEEN '59 min' AND '61 min' AS an_hour
  FROM idempotency.records WHERE (scope, key) = ('lease', 'signs');

-- A finished claim has no lease to prolong.
SELECT * FROM refused($$
SELECT idem_extend('work', :token, scope => 'lease');
SELECT idem_checkpoint('work', 'too late', scope => 'lease', token => :token);
$$, :token);

-- After a takeover the old token is dead for everything, and the new one is not.
SELECT token AS old FROM idem_begin('race', scope => 'lease') \gset
SELECT test.let_pass('2 hours', 'lease');
SELECT token AS new, attempt FROM idem_begin('race', scope => 'lease') \gset
SELECT token AS foreign_token FROM idem_begin('other', scope => 'lease') \gset
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT idem_complete('race', 200, scope => 'lease', token => :token);
SELECT idem_fail('race', scope => 'lease', token => :token);
SELECT idem_extend('race', :token, scope => 'lease');
SELECT idem_checkpoint('race', 'here', scope => 'lease', token => :token);
SELECT idem_release('race', 'lease', token => :token);
$$, :old);
-- A token opens only its own key.
SELECT * FROM refused($$
SELECT idem_complete('race', 200, scope => 'lease', token => :token);
SELECT idem_extend('race', :token, scope => 'lease');
SELECT idem_release('race', 'lease', token => :token);
$$, :foreign_token);
-- Nor does any call do without a token, or without a record.
SELECT * FROM refused($$
SELECT idem_extend('race', NULL, scope => 'lease');
SELECT idem_checkpoint('race', 'here', scope => 'lease');
SELECT idem_release('race', 'lease');
$$);
SELECT * FROM refused($$
SELECT idem_extend('nobody', :token, scope => 'lease');
SELECT idem_checkpoint('nobody', 'here', scope => 'lease', token => :token);
SELECT idem_release('nobody', 'lease', token => :token);
$$, :new);
SELECT test.stored() = :'before' AS unchanged;
SELECT :attempt AS attempt, idem_complete('race', 200, scope => 'lease', token => :new);

-- Release gives the key back as if it had never been begun, for any payload: leased...
SELECT token FROM idem_begin('back', '{"amount": 5}', 'lease') \gset
SELECT idem_release('back', 'lease', token => :token);
SELECT count(*) FROM idempotency.records WHERE (scope, key) = ('lease', 'back');
SELECT idem_release('back', 'lease', token => :token);
\echo :SQLSTATE
-- ... and within the transaction of the claim, where it can be begun again.
BEGIN;
SELECT outcome, attempt FROM idem_begin('back', '{"amount": 6}', 'lease');
SELECT idem_release('back', 'lease');
SELECT keys = test.by_store(0, 1) AS lock_given_back FROM test.locks();
SELECT outcome, attempt FROM idem_begin('back', '{"amount": 7}', 'lease');
SELECT idem_checkpoint('back', 'here', scope => 'lease') > now() AS written;
SELECT idem_release('back', 'lease');
SELECT count(*) FROM idempotency.records WHERE (scope, key) = ('lease', 'back');
SELECT idem_complete('back', 200, scope => 'lease');
ROLLBACK;
-- A retry that is released leaves the attempt before as it was: not to be counted, and bound to its
-- payload.
SELECT token FROM idem_begin('back', '{"amount": 5}', 'lease') \gset
SELECT idem_fail('back', 'down', true, scope => 'lease', token => :token, retry_after => '0');
BEGIN;
SELECT outcome, attempt FROM idem_begin('back', '{"amount": 5}', 'lease');
SELECT idem_release('back', 'lease');
COMMIT;
SELECT outcome FROM idem_begin('back', '{"amount": 6}', 'lease');
SELECT token, attempt AS taken_attempt FROM idem_begin('back', '{"amount": 5}', 'lease') \gset
SELECT :taken_attempt AS attempt, idem_release('back', 'lease', token => :token);
SELECT status, attempt, error FROM idempotency.records WHERE (scope, key) = ('lease', 'back');
-- The token that was given back is dead: nothing is recorded under it.
SELECT idem_complete('back', 200, scope => 'lease', token => :token);
\echo :SQLSTATE
SELECT outcome, attempt FROM idem_begin('back', '{"amount": 5}', 'lease');

-- hold: the connection itself is the sign of life, and the row names it.
SELECT token FROM idem_begin('held', scope => 'lease', lease => '1 day', hold => true) \gset
SELECT backend_pid = pg_backend_pid() AS this_one,
       backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS this_start
  FROM idempotency.record WHERE (scope, key) = ('lease', 'held');
SELECT held FROM idempotency.records WHERE (scope, key) = ('lease', 'held');
SELECT outcome FROM idem_begin('held', scope => 'lease');
SELECT idem_complete('held', 200, scope => 'lease', token => :token);
SELECT held FROM idempotency.records WHERE (scope, key) = ('lease', 'held');
-- Commands that reset a session, and a rollback, leave it alone.
SELECT token FROM idem_begin('held2', scope => 'lease', lease => '1 day', hold => true) \gset
BEGIN;
SELECT idem_release('held2', 'lease', token => :token);
ROLLBACK;
SELECT pg_advisory_unlock_all();
DISCARD ALL;
SELECT kind, pid = pg_backend_pid() AS this_one FROM idempotency.in_flight WHERE (scope, key) = ('lease', 'held2');
-- One whose backend is gone has no other name anywhere, though its lease runs for another day: not
-- where an operator has to decide, either.
SELECT idem_policy_set('lease-unknown', on_lease_expiry => 'unknown');
SELECT token FROM idem_begin('held3', scope => 'lease-unknown', lease => '1 day', hold => true) \gset
UPDATE idempotency.record SET backend_start = backend_start - interval '1 microsecond' WHERE key = 'held3';
SELECT outcome FROM idem_begin('held3', scope => 'lease-unknown');
SELECT status, lease_until > now() AS leased FROM idem_get('held3', 'lease-unknown');
SELECT status FROM idempotency.records WHERE key = 'held3';
SELECT count(*) FROM idempotency.in_flight WHERE key = 'held3';
SELECT status, overdue FROM idempotency.abandoned WHERE key = 'held3';
SELECT idem_forget('held3', 'lease-unknown');
SELECT idem_policy_drop('lease-unknown', 'a test');
-- When the connection is gone the claim is taken over at once, a day before its lease ends. (The
-- server may take a moment to notice, hence the wait.)
\c -
SELECT outcome, attempt, lease_until > now() FROM idem_begin('held2', scope => 'lease', wait => '30 s');
-- A claim that is not held keeps its lease.
SELECT outcome FROM idem_begin('unheld', scope => 'lease', lease => '1 day');
\c -
SELECT outcome FROM idem_begin('unheld', scope => 'lease');
