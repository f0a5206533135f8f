-- The end of each attempt, where the policy keeps the history.
\a\pset footer off
SELECT idem_policy_set('kept', keep_history => true, max_attempts => 5, retry_base => '0', retry_cap => '0');
CREATE FUNCTION history(wanted text) RETURNS TABLE (attempt int, how text, status_code int, error text, holder text, resolved text, in_order boolean)
LANGUAGE sql AS $$
SELECT attempt, how, status_code, error, holder, CASE WHEN resolved_by = session_user THEN 'by us' ELSE resolved_by END, begun <= ended
  FROM idempotency.attempts WHERE key = wanted AND scope = 'kept' ORDER BY ended, attempt
$$;
-- A webhook that is delivered at the third try: who sent it sees when and why the others failed.
SELECT token FROM idem_begin('hook', scope => 'kept', holder => 'worker 1', lease => '1 h') \gset
SELECT idem_fail('hook', error => 'connection refused', retryable => true, retry_after => '0', token => :token, scope => 'kept');
SELECT token FROM idem_begin('hook', scope => 'kept', holder => 'worker 2', lease => '1 h') \gset
SELECT idem_fail('hook', error => '502 Bad Gateway', retryable => true, retry_after => '0', token => :token, scope => 'kept', status_code => 502);
SELECT token FROM idem_begin('hook', scope => 'kept', holder => 'worker 3', lease => '1 h') \gset
SELECT idem_complete('hook', 200, 'ok', token => :token, scope => 'kept');
SELECT * FROM history('hook');
-- Recorded once, however often the same token says it.
SELECT idem_complete('hook', 200, 'ok', token => :token, scope => 'kept');
SELECT count(*) FROM history('hook');
-- In one transaction; and by idem_once and idem_execute.
BEGIN;
SELECT outcome FROM idem_begin('short', scope => 'kept');
SELECT idem_fail('short', status_code => 422, error => 'no such account', scope => 'kept');
COMMIT;
SELECT * FROM history('short');
SELECT idem_once('message', scope => 'kept');
SELECT idem_once('message', scope => 'kept');
SELECT * FROM history('message');
CREATE FUNCTION charge(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"done": true}'::jsonb $$;
SELECT outcome FROM idem_execute('run', 'charge(jsonb)', '{}', scope => 'kept');
SELECT * FROM history('run');
-- A rollback leaves none: neither an attempt, nor the end of one.
BEGIN;
SELECT outcome FROM idem_begin('undone', scope => 'kept');
SELECT idem_complete('undone', 200, scope => 'kept');
ROLLBACK;
SELECT * FROM history('undone');
SELECT token FROM idem_begin('half', scope => 'kept', lease => '1 h') \gset
BEGIN;
SAVEPOINT s;
SELECT idem_complete('half', 200, token => :token, scope => 'kept');
ROLLBACK TO s;
SELECT * FROM history('half');
SELECT idem_fail('half', error => 'changed our mind', token => :token, scope => 'kept');
COMMIT;
SELECT * FROM history('half');
-- Silent beyond its lease, and taken over; given back; decided by an operator.
SELECT token FROM idem_begin('lost', scope => 'kept', holder => 'crashed', lease => '1 us') \gset
SELECT attempt, token FROM idem_begin('lost', scope => 'kept', holder => 'next', lease => '1 h') \gset
SELECT idem_release('lost', scope => 'kept', token => :token);
SELECT * FROM history('lost');
-- A takeover that is given back in its transaction was none: the attempt goes on, and ends once.
SELECT token FROM idem_begin('back', scope => 'kept', holder => 'slow', lease => '1 us') \gset
BEGIN;
SELECT outcome, attempt FROM idem_begin('back', scope => 'kept', holder => 'busy');
SELECT attempt, how FROM history('back');
SELECT idem_release('back', scope => 'kept');
COMMIT;
SELECT count(*) FROM history('back');
BEGIN;
SELECT outcome, attempt FROM idem_begin('back', scope => 'kept', holder => 'busy');
SAVEPOINT s;
SELECT idem_release('back', scope => 'kept');
ROLLBACK TO s;
SELECT attempt, how FROM history('back');
SELECT idem_checkpoint('back', 'looked at', scope => 'kept') > now() AS written;
SELECT idem_release('back', scope => 'kept');
COMMIT;
SELECT idem_complete('back', 200, token => :token, scope => 'kept');
SELECT attempt, how, status_code, holder FROM history('back');
SELECT outcome FROM idem_begin('ruled', scope => 'kept', lease => '1 h');
SELECT idem_resolve('ruled', 'fail', 'kept', error => 'the bank says no');
SELECT * FROM history('ruled');
-- A decision about a record without a running attempt ends no attempt.
SELECT token FROM idem_begin('idle', scope => 'kept', lease => '1 h') \gset
SELECT idem_fail('idle', error => 'once', retryable => true, token => :token, scope => 'kept');
SELECT idem_resolve('idle', 'complete', 'kept', status_code => 200);
SELECT attempt, how, error FROM history('idle');
-- Who ends without a result has neither the error of the attempt before, nor its judge.
SELECT outcome FROM idem_begin('heir', scope => 'kept', holder => 'first', lease => '1 h');
SELECT idem_resolve('heir', 'release', 'kept', error => 'stuck', even_if_running => true);
SELECT token, error FROM idem_begin('heir', scope => 'kept', holder => 'second', lease => '1 h') \gset
SELECT idem_release('heir', scope => 'kept', token => :token);
SELECT outcome FROM idem_begin('heir', scope => 'kept', holder => 'third', lease => '1 us');
SELECT outcome FROM idem_begin('heir', scope => 'kept', holder => 'fourth', lease => '1 h');
SELECT attempt, how, error, holder, resolved FROM history('heir');
-- Without the option there is none, and a repeat adds nothing.
SELECT idem_once('plain', scope => 'other');
SELECT outcome FROM idem_begin('hook', scope => 'kept');
SELECT count(*) FILTER (WHERE scope <> 'kept') AS others, count(*) FILTER (WHERE key = 'hook') AS hook FROM idempotency.attempts;
-- It goes with its time, or with the key.
SELECT idem_forget('hook', 'kept');
SELECT count(*) FROM history('hook');
SELECT idem_policy_set('brief', keep_history => true, ttl => '1 us', retention => '1 us');
SELECT idem_once('gone', scope => 'brief');
SELECT idem_cleanup() >= 2 AS record_and_attempt;
SELECT count(*) FROM idempotency.attempts WHERE scope = 'brief';
-- A principal that is forgotten has none, of keys whose records are gone as well.
SELECT idem_once('first', scope => 'kept', principal => 'someone') AND idem_once('second', scope => 'kept', principal => 'someone') AS done;
DELETE FROM idempotency.record WHERE key = 'second' AND principal = 'someone';
SELECT count(*) FROM idempotency.attempts WHERE principal = 'someone';
CALL idem_forget_principal('someone');
SELECT count(*) FROM idempotency.attempts WHERE principal = 'someone';
-- An abandoned claim: the policy ends it, and the attempt says so.
SELECT idem_policy_alter('kept', abandon_after => '1 us', on_abandon => 'fail');
SELECT outcome FROM idem_begin('left', scope => 'kept', holder => 'gone', lease => '1 us');
SELECT idem_cleanup() >= 0 AS swept;
SELECT attempt, how, error, holder FROM history('left');
-- Only the owner writes it; monitoring roles see no errors.
SET ROLE pg_monitor;
SELECT count(*) > 0 AS seen FROM (SELECT scope, key, attempt, how FROM idempotency.attempts) a;
SELECT * FROM refused($$
SELECT error FROM idempotency.attempts;
SELECT count(*) FROM idempotency.attempt;
$$);
RESET ROLE;
SELECT idem_policy_drop('kept');
SELECT idem_policy_drop('brief');
DROP FUNCTION history(text), charge(jsonb);
