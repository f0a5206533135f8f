-- Promise: edge cases that were once broken. A value too large for its page is written and read at the
-- moment of COMMIT. Long work does not outlast its own ttl. A release of a later attempt leaves the
-- earlier one unchanged.
\a\pset footer off
\set SHOW_CONTEXT never

-- A state that has to be toasted: written in the transaction, and read back when it commits with the
-- claim still open, where no statement's snapshot is left.
CREATE FUNCTION test.large_state() RETURNS jsonb LANGUAGE sql
    AS $$SELECT to_jsonb(string_agg(sha256(n::text::bytea)::text, '')) FROM generate_series(1, 500) n$$;
BEGIN;
SELECT outcome FROM idem_begin('commit', scope => 'edges');
SELECT idem_checkpoint('commit', 'half', test.large_state(), 'edges') IS NOT NULL AS noted;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_begin('repeatable', scope => 'edges');
SELECT idem_checkpoint('repeatable', 'half', test.large_state(), 'edges') IS NOT NULL AS noted;
COMMIT;
CREATE PROCEDURE test.begin_and_commit(key text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_begin(key, scope => 'edges');
    PERFORM idem_checkpoint(key, 'half', test.large_state(), 'edges');
    COMMIT;
    PERFORM idem_begin(key || ' again', scope => 'edges');
END
$$;
CALL test.begin_and_commit('procedure');
SELECT key, status, recovery_point, state = test.large_state() AS whole
  FROM idempotency.records WHERE scope = 'edges' ORDER BY key;

-- Work that outlasts its ttl: a caller that waited for the answer gets it, and does not execute.
SELECT token FROM idem_begin('long', '{"a": 1}', 'edges', ttl => '1 minute', lease => '1 hour') \gset long_
SELECT test.let_pass('10 minutes', 'edges');
SELECT outcome FROM idem_begin('long', '{"a": 1}', 'edges');
SELECT idem_complete('long', 200, 'done', scope => 'edges', token => :long_token);
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_begin('long', '{"a": 1}', 'edges');
SELECT expires_at - finished_at AS ttl, retained_until - finished_at AS retention
  FROM idempotency.records WHERE (scope, key) = ('edges', 'long');
-- Work that ends in good time does not move its ttl.
SELECT token FROM idem_begin('short', '{"a": 1}', 'edges', ttl => '1 hour') \gset short_
SELECT test.let_pass('10 minutes', 'edges');
SELECT idem_complete('short', 200, scope => 'edges', token => :short_token);
SELECT expires_at - claimed_at AS ttl FROM idempotency.records WHERE (scope, key) = ('edges', 'short');
-- An operator's word counts as long: it usually comes late.
SELECT outcome FROM idem_begin('stuck', scope => 'edges', ttl => '1 minute', lease => '1 minute');
SELECT test.let_pass('10 minutes', 'edges');
SELECT idem_resolve('stuck', 'complete', 'edges', status_code => 200, body => 'it was done');
SELECT outcome, convert_from(body, 'UTF8') AS body FROM idem_begin('stuck', scope => 'edges');
-- A retry that is due after the ttl can still be made.
SELECT token FROM idem_begin('retry', scope => 'edges', ttl => '1 minute') \gset retry_
SELECT idem_fail('retry', 'busy', true, scope => 'edges', token => :retry_token, retry_after => '10 minutes');
SELECT test.let_pass('10 minutes', 'edges');
SELECT outcome, attempt FROM idem_begin('retry', scope => 'edges');

-- Giving a second attempt back, in its transaction and after it: the key stays bound to its payload.
SELECT token FROM idem_begin('given', '{"a": 1}', 'edges') \gset given_
SELECT idem_fail('given', 'busy', true, scope => 'edges', token => :given_token, retry_after => '0');
BEGIN;
SELECT outcome, attempt FROM idem_begin('given', '{"a": 1}', 'edges');
SELECT idem_release('given', 'edges');
SELECT outcome FROM idem_begin('given', '{"a": 2}', 'edges');
COMMIT;
SELECT status, attempt, error FROM idempotency.records WHERE (scope, key) = ('edges', 'given');
SELECT outcome, attempt, token FROM idem_begin('given', '{"a": 1}', 'edges') \gset given_
SELECT idem_release('given', 'edges', token => :given_token);
SELECT status, attempt, error FROM idempotency.records WHERE (scope, key) = ('edges', 'given');
SELECT outcome, attempt FROM idem_begin('given', '{"a": 1}', 'edges');

-- Begin, complete, forget and complete again in one transaction: there is nothing to complete.
BEGIN;
SELECT outcome FROM idem_begin('forgotten', scope => 'edges');
SELECT idem_complete('forgotten', 200, scope => 'edges');
SELECT idem_forget('forgotten', 'edges');
SELECT idem_complete('forgotten', 200, scope => 'edges') AS recorded_again;
COMMIT;
DROP PROCEDURE test.begin_and_commit;
DROP FUNCTION test.large_state;

-- The same by token, after its ttl: still bound, still resumable.
SELECT outcome FROM idem_begin('taken', '{"a": 1}', 'edges', ttl => '1 minute', lease => '1 second');
SELECT test.let_pass('30 seconds', 'edges');
SELECT outcome, attempt, token FROM idem_begin('taken', '{"a": 1}', 'edges', ttl => '1 minute', lease => '1 hour') \gset taken_
SELECT idem_checkpoint('taken', 'charged', scope => 'edges', token => :taken_token) IS NOT NULL AS noted;
SELECT test.let_pass('10 minutes', 'edges');
SELECT idem_release('taken', 'edges', token => :taken_token);
SELECT outcome FROM idem_begin('taken', '{"a": 2}', 'edges');
SELECT outcome, attempt, recovery_point FROM idem_begin('taken', '{"a": 1}', 'edges');

-- One more attempt that an operator allowed is not used up by giving it back.
SELECT idem_policy_set('edges-limited', max_attempts => 1);
SELECT token FROM idem_begin('allowed', scope => 'edges-limited') \gset allowed_
SELECT idem_fail('allowed', 'busy', true, scope => 'edges-limited', token => :allowed_token, retry_after => '0');
SELECT outcome FROM idem_begin('allowed', scope => 'edges-limited');
SELECT idem_resolve('allowed', 'release', 'edges-limited');
SELECT outcome, attempt, token FROM idem_begin('allowed', scope => 'edges-limited') \gset allowed_
SELECT idem_release('allowed', 'edges-limited', token => :allowed_token);
SELECT outcome, attempt FROM idem_begin('allowed', scope => 'edges-limited');
SELECT idem_policy_drop('edges-limited');

-- Triggers on the table: one that calls back for the key that is being written is refused.
CREATE FUNCTION test.call_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.idem_release(NEW.key, NEW.scope);
    RETURN NEW;
END
$$;
CREATE TRIGGER call_back BEFORE INSERT ON idempotency.record
    FOR EACH ROW WHEN (NEW.scope = 'edges-trigger') EXECUTE FUNCTION test.call_back();
SELECT outcome FROM idem_begin('one', scope => 'edges-trigger');
\echo :SQLSTATE
DROP TRIGGER call_back ON idempotency.record;
-- One that ends another claim of the transaction, and one that begins one, are welcome.
CREATE OR REPLACE FUNCTION test.call_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key = 'two' THEN
        PERFORM public.idem_release('one', NEW.scope), public.idem_begin('three', scope => NEW.scope);
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER call_back BEFORE INSERT ON idempotency.record
    FOR EACH ROW WHEN (NEW.scope = 'edges-trigger') EXECUTE FUNCTION test.call_back();
BEGIN;
SELECT outcome FROM idem_begin('one', scope => 'edges-trigger');
SELECT outcome FROM idem_begin('two', scope => 'edges-trigger');
COMMIT;
SELECT key, status FROM idempotency.records WHERE scope = 'edges-trigger' ORDER BY key;
DROP TRIGGER call_back ON idempotency.record;
DROP FUNCTION test.call_back;

-- A deferred constraint on the table would be checked at COMMIT, with the rights of the committing user.
CREATE TABLE test.tenant (name text PRIMARY KEY);
INSERT INTO test.tenant SELECT DISTINCT principal FROM idempotency.record;
ALTER TABLE idempotency.record ADD CONSTRAINT tenant_known FOREIGN KEY (principal)
    REFERENCES test.tenant DEFERRABLE INITIALLY DEFERRED;
\set VERBOSITY terse
SELECT outcome FROM idem_begin('nobody', scope => 'edges', principal => 'nobody');
\echo :SQLSTATE
\set VERBOSITY default
SELECT idem_get('nobody', 'edges', 'nobody') IS NULL AS nothing_kept;
ALTER TABLE idempotency.record DROP CONSTRAINT tenant_known;
DROP TABLE test.tenant;
