-- A transactional claim has to end in its transaction: one that is open at COMMIT or PREPARE
-- TRANSACTION is an error, and nothing of the transaction stays.
\a\pset footer off
\set SHOW_CONTEXT never
CREATE TABLE tx_effect (what text);
-- A failed commit leaves no effect and no record.
CREATE FUNCTION tx_left() RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM tx_effect) || ' effects, ' || (SELECT count(*) FROM idempotency.record WHERE scope LIKE 'tx%') || ' records'
$$;

-- Open at COMMIT. The error names the scope, and no key.
BEGIN;
INSERT INTO tx_effect VALUES ('secret-1');
SELECT outcome FROM idem_begin('secret-1', scope => 'tx', transactional => true);
COMMIT;
SELECT tx_left();
-- The key is as free as before.
SELECT outcome, attempt FROM idem_begin('secret-1', scope => 'tx');
DELETE FROM idempotency.record WHERE scope = 'tx';

-- A statement of its own is a transaction of its own.
SELECT outcome FROM idem_begin('k', scope => 'tx', transactional => true);
SELECT tx_left();
-- So is a DO block, and one COMMIT in it.
DO $$ BEGIN
    INSERT INTO tx_effect VALUES ('do');
    PERFORM idem_begin('k', scope => 'tx', transactional => true);
END $$;
DO $$ BEGIN
    INSERT INTO tx_effect VALUES ('do commit');
    PERFORM idem_begin('k', scope => 'tx', transactional => true);
    COMMIT;
    RAISE 'not reached';
END $$;
SELECT tx_left();
-- A procedure that commits its work first and claims afterwards.
CREATE PROCEDURE tx_early() LANGUAGE plpgsql AS $$ BEGIN
    PERFORM idem_begin('k', scope => 'tx', transactional => true);
    PERFORM idem_complete('k', scope => 'tx');
    COMMIT;
    INSERT INTO tx_effect VALUES ('early');
    PERFORM idem_begin('k2', scope => 'tx', transactional => true);
    COMMIT;
    RAISE 'not reached';
END $$;
CALL tx_early();
SELECT tx_left();
TRUNCATE tx_effect;
DELETE FROM idempotency.record WHERE scope = 'tx';

-- Each end satisfies it.
BEGIN;
SELECT outcome FROM idem_begin('c', scope => 'tx', transactional => true);
SELECT idem_complete('c', 201, 'done', scope => 'tx');
SELECT outcome FROM idem_begin('f', scope => 'tx', transactional => true);
SELECT idem_fail('f', 'declined', scope => 'tx');
SELECT outcome FROM idem_begin('r', scope => 'tx', transactional => true);
SELECT idem_fail('r', 'timeout', retryable => true, retry_after => '0', scope => 'tx');
SELECT outcome FROM idem_begin('l', scope => 'tx', transactional => true);
SELECT idem_release('l', scope => 'tx');
COMMIT;
SELECT key, status FROM idempotency.records WHERE scope = 'tx' ORDER BY key;
-- A replay opens no claim, a retry does.
SELECT outcome FROM idem_begin('c', scope => 'tx', transactional => true);
SELECT outcome FROM idem_begin('r', scope => 'tx', transactional => true);
SELECT key, status, attempt FROM idempotency.records WHERE scope = 'tx' ORDER BY key;

-- Of several claims one is left open.
BEGIN;
SELECT outcome FROM idem_begin('n1', scope => 'tx', transactional => true);
SELECT outcome FROM idem_begin('n2', scope => 'tx 2', transactional => true);
SELECT outcome FROM idem_begin('n3', scope => 'tx', transactional => true);
SELECT idem_complete('n1', scope => 'tx'), idem_complete('n3', scope => 'tx');
COMMIT;
-- A claim that may be leased goes with it, and is leased where the other has ended.
BEGIN;
SELECT outcome FROM idem_begin('n1', scope => 'tx', transactional => true);
SELECT outcome FROM idem_begin('n4', scope => 'tx', lease => '1 hour');
COMMIT;
SELECT count(*) FROM idempotency.records WHERE scope ~ '^tx' AND key ~ '^n';
BEGIN;
SELECT outcome FROM idem_begin('n1', scope => 'tx', transactional => true);
SELECT outcome FROM idem_begin('n4', scope => 'tx', lease => '1 hour');
SELECT idem_complete('n1', scope => 'tx');
COMMIT;
SELECT key, status FROM idempotency.records WHERE scope ~ '^tx' AND key ~ '^n' ORDER BY key;

-- A checkpoint and a longer lease end nothing, though they write the row.
BEGIN;
SELECT outcome FROM idem_begin('p', scope => 'tx', transactional => true);
SELECT idem_checkpoint('p', 'charged', scope => 'tx') IS NOT NULL AS kept;
COMMIT;
BEGIN;
SELECT token FROM idem_begin('p', scope => 'tx', transactional => true) \gset
SELECT idem_extend('p', :token, '1 hour', scope => 'tx') IS NOT NULL AS extended;
COMMIT;
SELECT count(*) FROM idempotency.records WHERE key = 'p';

-- Savepoints. The claim undone: nothing is left to end.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_begin('s1', scope => 'tx', transactional => true);
ROLLBACK TO s;
COMMIT;
-- The end undone: open again.
BEGIN;
SELECT outcome FROM idem_begin('s2', scope => 'tx', transactional => true);
SAVEPOINT s;
SELECT idem_complete('s2', scope => 'tx');
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT outcome FROM idem_begin('s2', scope => 'tx', transactional => true);
SAVEPOINT s;
SELECT idem_release('s2', scope => 'tx');
ROLLBACK TO s;
COMMIT;
-- The end counts, in any savepoint.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_begin('s3', scope => 'tx', transactional => true);
SAVEPOINT t;
SELECT idem_complete('s3', scope => 'tx');
RELEASE t;
RELEASE s;
COMMIT;
-- Blocks of PL/pgSQL: one that has failed has taken its claim along, the other leaves it open.
DO $$ BEGIN
    BEGIN
        PERFORM idem_begin('s4', scope => 'tx', transactional => true);
        RAISE 'lost';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
    BEGIN
        PERFORM idem_begin('s5', scope => 'tx', transactional => true);
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
END $$;
-- The swallowed error: the end fails, is swallowed, and the commit is refused.
DO $$ BEGIN
    INSERT INTO tx_effect VALUES ('paid');
    PERFORM idem_begin('s6', scope => 'tx', transactional => true);
    BEGIN
        PERFORM idem_complete('s6', 99, scope => 'tx');
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
END $$;
SELECT key, status FROM idempotency.records WHERE scope = 'tx' AND key ~ '^s[1-6]' ORDER BY key;
SELECT count(*) FROM tx_effect;

-- Deferred triggers run before the commit is judged: what they begin has to be ended, what they end
-- has ended.
CREATE FUNCTION tx_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.what = 'begin' THEN PERFORM idem_begin('d1', scope => 'tx', transactional => true);
    ELSE PERFORM idem_complete('d2', scope => 'tx');
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER tx_late AFTER INSERT ON tx_effect DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tx_trigger();
INSERT INTO tx_effect VALUES ('begin');
BEGIN;
SELECT outcome FROM idem_begin('d2', scope => 'tx', transactional => true);
INSERT INTO tx_effect VALUES ('end');
COMMIT;
SELECT what FROM tx_effect;
DROP TRIGGER tx_late ON tx_effect;
TRUNCATE tx_effect;

-- A holdable cursor runs to its end at the commit.
BEGIN;
DECLARE tx_cursor CURSOR WITH HOLD FOR SELECT outcome FROM idem_begin('h', scope => 'tx', transactional => true);
COMMIT;
SELECT count(*) FROM idempotency.records WHERE key = 'h';
CLOSE ALL;

-- PREPARE TRANSACTION is no end either.
BEGIN;
INSERT INTO tx_effect VALUES ('prepared');
SELECT outcome FROM idem_begin('2pc', scope => 'tx', transactional => true);
PREPARE TRANSACTION 'regress_tx';
SELECT count(*) FROM pg_prepared_xacts;
BEGIN;
SELECT outcome FROM idem_begin('2pc', scope => 'tx', transactional => true);
SELECT idem_complete('2pc', scope => 'tx');
PREPARE TRANSACTION 'regress_tx';
COMMIT PREPARED 'regress_tx';
SELECT status FROM idempotency.records WHERE key = '2pc';
SELECT count(*) FROM tx_effect;

-- Arguments for claims that outlast their transaction are refused, for a replay as well.
SELECT idem_begin('x', scope => 'tx', transactional => true, lease => '1 minute');
SELECT idem_begin('x', scope => 'tx', transactional => true, hold => true);
SELECT idem_begin('c', scope => 'tx', transactional => true, hold => true);
-- Null is the default.
SELECT outcome FROM idem_begin('x', scope => 'tx', transactional => NULL);

-- The policy asks for it in each call, and no call loosens it.
SELECT idem_policy_set('txp*', transactional_only => true);
SELECT option, value, source, origin FROM idem_policy('txp/1') WHERE option = 'transactional_only';
SELECT policy->'transactional_only' AS explained FROM idem_explain('k', scope => 'txp/1');
SELECT scope_pattern, transactional_only FROM idempotency.policies WHERE scope_pattern = 'txp*';
SELECT outcome FROM idem_begin('k', scope => 'txp/1');
SELECT outcome FROM idem_begin('k', scope => 'txp/1', transactional => false);
SELECT idem_begin('k', scope => 'txp/1', lease => '1 minute', transactional => false);
SELECT idem_begin('k', scope => 'txp/1', hold => true);
SELECT outcome, reason FROM idem_explain('k', scope => 'txp/1');
SELECT outcome FROM idem_explain('k', scope => 'txp/1', lease => '1 minute');
-- Claims that end by themselves.
SELECT idem_once('o', scope => 'txp/1');
CREATE FUNCTION tx_operation(request jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT request';
SELECT outcome, status FROM idem_execute('e', 'tx_operation(jsonb)', '1', scope => 'txp/1');
SELECT key, status FROM idempotency.records WHERE scope = 'txp/1' ORDER BY key;
-- An operation has begun a claim of its own and not ended it.
CREATE FUNCTION tx_nested(request jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT to_jsonb(outcome) FROM idem_begin('inner', scope => 'txp/2')
$$;
SELECT outcome, status FROM idem_execute('outer', 'tx_nested(jsonb)', '1', scope => 'txp/1');
SELECT count(*) FROM idempotency.records WHERE key IN ('inner', 'outer');

-- The policy at the grant counts.
BEGIN;
SELECT outcome FROM idem_begin('g1', scope => 'txp/1');
SELECT idem_policy_alter('txp*', transactional_only => false, reason => 'a test');
COMMIT;
SELECT transactional_only FROM idempotency.policies WHERE scope_pattern = 'txp*';
SELECT idem_policy_alter('txp*', transactional_only => false, reason => 'a test');
BEGIN;
SELECT outcome FROM idem_begin('g2', scope => 'txp/1');
SELECT idem_policy_alter('txp*', transactional_only => true);
COMMIT;
SELECT key, status FROM idempotency.records WHERE scope = 'txp/1' AND key ~ '^g' ORDER BY key;
-- A lease of before is ended by its token, or taken over by a claim that has to end.
SELECT token FROM idempotency.record WHERE key = 'g2' \gset
SELECT idem_extend('g2', :token, '1 us', scope => 'txp/1') IS NOT NULL AS extended;
SELECT outcome, attempt FROM idem_begin('g2', scope => 'txp/1');
SELECT idem_complete('g2', scope => 'txp/1', token => :token);
SELECT outcome FROM idem_begin('g2', scope => 'txp/1');

SELECT idem_policy_drop('txp*', 'a test');
DROP TABLE tx_effect;
DROP FUNCTION tx_left, tx_trigger, tx_operation, tx_nested;
DROP PROCEDURE tx_early;
DELETE FROM idempotency.record WHERE scope LIKE 'tx%';
