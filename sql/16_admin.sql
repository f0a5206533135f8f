-- Promise: an operator can look at a record, decide one that needs a decision, and remove old ones, but
-- can't change a result that clients have got or remove the record of a live claim.
\a\pset footer off

-- idem_get: everything but the token, and no outcome, because nothing is decided.
SELECT idem_get('absent', 'admin') IS NULL AS absent;
SELECT token FROM idem_begin('open', '{"amount": 5}', 'admin', 'shop', holder => 'worker-1') \gset
SELECT idem_checkpoint('open', 'reserved', '{"seat": "12A"}', 'admin', 'shop', :token) > now() AS written;
SELECT test.seen(c) FROM idem_get('open', 'admin', 'shop') c;
SELECT idem_get('open', 'admin') IS NULL AS other_principal;
SELECT idem_complete('open', 201, 'made', '{"X": "y"}', 'admin', 'shop', :token);
SELECT test.seen(c) FROM idem_get('open', 'admin', 'shop') c;
-- It takes no lock and no transaction id.
BEGIN;
SELECT status FROM idem_get('open', 'admin', 'shop');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id, * FROM test.locks();
COMMIT;

-- One record of each kind that may need a decision, three times.
SELECT idem_policy_set('admin-unknown', on_lease_expiry => 'unknown');
SELECT idem_policy_set('admin-exhausted', max_attempts => 1);
SELECT count(*) FROM unnest('{admin-leased,admin-unknown,admin-exhausted}'::text[]) s, unnest('{release,complete,fail}'::text[]) k,
       idem_begin(k, '{"amount": 5}', s, holder => 'worker-1') c WHERE c.outcome = 'execute';
SELECT bool_and(idem_checkpoint(key, 'charged', '{"charge": "ch_1"}', scope, token => token) > now()) AS written
  FROM idempotency.record WHERE scope LIKE 'admin-%';
SELECT bool_and(idem_fail(key, 'bank is down', true, 503, scope => scope, token => token, retry_after => '1 hour'))
  FROM idempotency.record WHERE scope = 'admin-exhausted';
SELECT test.let_pass('1 hour', 'admin-unknown');
SELECT DISTINCT s AS scope, outcome
  FROM unnest('{admin-leased,admin-unknown,admin-exhausted}'::text[]) s, unnest('{release,complete,fail}'::text[]) k,
       idem_begin(k, '{"amount": 5}', s) ORDER BY 1;
CREATE TEMP TABLE old AS SELECT scope, key, token FROM idempotency.record WHERE scope LIKE 'admin-%';
-- Decided. The record says by whom; the old token is dead.
SELECT s AS scope, idem_resolve('release', 'release', s, error => 'looked at it', even_if_running => true),
       idem_resolve('complete', 'complete', s, status_code => 200, body => 'by hand', headers => '{"X": "y", "Date": "today"}'),
       idem_resolve('fail', 'fail', s, status_code => 410, body => 'gone', error => 'given up')
  FROM unnest('{admin-leased,admin-unknown,admin-exhausted}'::text[]) s;
SELECT scope, key, status, attempt, status_code, headers, body, error, resolved_by = session_user AS resolved,
       lease_until IS NULL AS no_lease, recovery_point
  FROM idempotency.records WHERE scope LIKE 'admin-%' ORDER BY scope, key;
SELECT bool_and(r.token > old.token) AS newer_tokens
  FROM idempotency.record r JOIN old USING (scope, key);
SELECT token AS old_token FROM old WHERE (scope, key) = ('admin-leased', 'complete') \gset
SELECT idem_complete('complete', 200, 'too late', scope => 'admin-leased', token => :old_token);
\echo :SQLSTATE
SELECT token AS old_token FROM old WHERE (scope, key) = ('admin-leased', 'release') \gset
SELECT idem_complete('release', 200, 'too late', scope => 'admin-leased', token => :old_token);
\echo :SQLSTATE
-- The next caller's outcome. A released record runs again at once, with its recovery point, once
-- more than the policy allows.
SELECT s AS scope, test.seen(c) FROM unnest('{admin-leased,admin-unknown,admin-exhausted}'::text[]) s,
       unnest('{complete,fail,release}'::text[]) k, idem_begin(k, '{"amount": 5}', s) c;
SELECT idem_fail(key, 'down again', true, scope => scope, token => token, retry_after => '0')
  FROM idempotency.record WHERE (scope, key) = ('admin-exhausted', 'release');
SELECT outcome, attempt FROM idem_begin('release', '{"amount": 5}', 'admin-exhausted');
SELECT idem_policy_drop('admin-unknown', 'a test'), idem_policy_drop('admin-exhausted', 'a test');

-- A late decision reaches the callers that have waited for it.
SELECT idem_policy_set('admin-late', on_lease_expiry => 'unknown');
SELECT outcome FROM unnest('{release,complete,fail}'::text[]) k, idem_begin(k, '{"amount": 5}', 'admin-late');
SELECT test.let_pass('1 year', 'admin-late');
SELECT idem_resolve(k, k, 'admin-late') FROM unnest('{release,complete,fail}'::text[]) k;
SELECT key, outcome, attempt FROM unnest('{release,complete,fail}'::text[]) k, idem_begin(k, '{"amount": 5}', 'admin-late');
SELECT idem_policy_drop('admin-late', 'a test');
-- But for no longer than the policy's ttl, however often it is decided.
SELECT idem_policy_set('admin-again', ttl => '1 hour');
SELECT outcome FROM idem_begin('again', scope => 'admin-again');
SELECT test.let_pass('50 minutes', 'admin-again'), idem_resolve('again', 'release', 'admin-again');
SELECT test.let_pass('50 minutes', 'admin-again'), idem_resolve('again', 'release', 'admin-again');
SELECT test.let_pass('50 minutes', 'admin-again'), idem_resolve('again', 'complete', 'admin-again');
SELECT expires_at - finished_at AS ttl, retained_until - finished_at AS retention
  FROM idempotency.records WHERE scope = 'admin-again';
SELECT idem_policy_drop('admin-again');

-- A released record stays bound to its payload.
SELECT outcome FROM idem_begin('bound', '{"amount": 5}', 'admin');
SELECT idem_resolve('bound', 'release', 'admin', even_if_running => true);
SELECT outcome FROM idem_begin('bound', '{"amount": 6}', 'admin');
SELECT outcome, attempt FROM idem_begin('bound', '{"amount": 5}', 'admin');

-- Results that clients have got are never changed, and without a record there is no decision.
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT idem_resolve('complete', 'fail', 'admin-leased');
SELECT idem_resolve('fail', 'release', 'admin-leased');
SELECT idem_resolve('absent', 'release', 'admin');
SELECT idem_resolve('complete', 'Complete', 'admin-leased');
SELECT idem_resolve('complete', NULL, 'admin-leased');
$$);
SELECT test.stored() = :'before' AS unchanged;
-- Undone with its transaction, and not for the transaction's own claim.
BEGIN;
SELECT idem_resolve('bound', 'complete', 'admin');
ROLLBACK;
SELECT outcome FROM idem_begin('bound', '{"amount": 5}', 'admin');
BEGIN;
SELECT outcome FROM idem_begin('own', scope => 'admin');
SAVEPOINT s;
SELECT idem_resolve('own', 'complete', 'admin');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT idem_forget('own', 'admin');
\echo :SQLSTATE
ROLLBACK;

-- idem_forget: the key is new again; not while a lease lives.
SELECT idem_forget('absent', 'admin');
SELECT idem_forget('open', 'admin', 'shop'), idem_forget('open', 'admin', 'shop');
SELECT outcome, attempt FROM idem_begin('open', '{"amount": 6}', 'admin', 'shop');
SELECT idem_forget('open', 'admin', 'shop');
\echo :SQLSTATE
SELECT test.let_pass('1 hour', 'admin');
SELECT idem_forget('open', 'admin', 'shop');
SELECT outcome FROM idem_begin('unknown', scope => 'admin');
UPDATE idempotency.record SET lease_until = now(), if_silent = 'u' WHERE (scope, key) = ('admin', 'unknown');
SELECT idem_forget('unknown', 'admin');
BEGIN;
SELECT idem_forget('complete', 'admin-leased');
SELECT outcome FROM idem_begin('complete', '{"amount": 7}', 'admin-leased');
ROLLBACK;
SELECT outcome FROM idem_begin('complete', '{"amount": 5}', 'admin-leased');

-- idem_cleanup: nothing is old yet, once the records of other tests are gone.
SELECT idem_cleanup() >= 0 AS cleaned;
SELECT idem_cleanup();
SELECT count(*) FROM generate_series(1, 10) i, idem_once('k' || i, 'admin-clean', ttl => '1 hour') o WHERE o;
SELECT idem_cleanup();
-- The one whose retention ended first goes first, as many as allowed. (In one transaction, so that
-- no sweeper comes first.)
BEGIN;
UPDATE idempotency.record SET retained_until = now() - substr(key, 2)::int * interval '1 min' WHERE scope = 'admin-clean';
UPDATE idempotency.record SET retained_until = now() + interval '1 min' WHERE (scope, key) = ('admin-clean', 'k1');
SELECT idem_cleanup(3);
SELECT string_agg(key, ' ' ORDER BY retained_until) AS kept FROM idempotency.records WHERE scope = 'admin-clean';
SAVEPOINT s;
SELECT idem_cleanup(1);
ROLLBACK TO s;
SELECT idem_cleanup(1);
SELECT idem_cleanup(NULL);
SELECT idem_cleanup();
SELECT key FROM idempotency.records WHERE scope = 'admin-clean';
-- A record without a result stays whatever its retention: it may still get one.
COMMIT;
SELECT outcome FROM unnest('{living,over,unknown,ended}'::text[]) k, idem_begin(k, scope => 'admin-clean');
SELECT idem_fail(key, scope => scope, token => token) FROM idempotency.record WHERE (scope, key) = ('admin-clean', 'ended');
BEGIN;
UPDATE idempotency.record SET retained_until = now() - interval '1 year' WHERE scope = 'admin-clean';
UPDATE idempotency.record SET lease_until = now() - interval '1 s'
 WHERE scope = 'admin-clean' AND key IN ('over', 'unknown');
UPDATE idempotency.record SET if_silent = 'u' WHERE (scope, key) = ('admin-clean', 'unknown');
SELECT idem_cleanup();
SELECT key, status FROM idempotency.records WHERE scope = 'admin-clean' ORDER BY key;
COMMIT;
SELECT idem_cleanup(0);
\echo :SQLSTATE
DROP TABLE old;
