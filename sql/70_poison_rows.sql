-- Promise: with the recipes of docs/recipes.md, a row that always fails keeps no other row waiting, and is
-- parked after its last attempt. (The recipes themselves are run by test/docs_check.)
\a\pset footer off

-- The outbox: taking a row counts its attempt, so that it is passed over until its pause ends.
CREATE TABLE test.outbox (
    id              int PRIMARY KEY,
    topic           text NOT NULL,
    attempts        int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error           text
);
CREATE TABLE test.sent (pass int, id int);
CREATE FUNCTION test.send_one(in_pass int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    taken record;
BEGIN
    UPDATE test.outbox
       SET attempts = attempts + 1,
           next_attempt_at = now() + greatest('1 minute', idem_backoff(attempts + 1, '5 seconds', '1 hour'))
     WHERE id = (SELECT id FROM test.outbox WHERE attempts < 8 AND next_attempt_at <= now()
                  ORDER BY next_attempt_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, topic INTO taken;
    IF taken.topic = 'good' THEN
        DELETE FROM test.outbox WHERE id = taken.id;
        INSERT INTO test.sent VALUES (in_pass, taken.id);
    ELSE
        UPDATE test.outbox SET error = 'status 502' WHERE id = taken.id;
    END IF;
END $$;
-- The poison is the first.
INSERT INTO test.outbox (id, topic, next_attempt_at)
SELECT i, CASE WHEN i IN (1, 4) THEN 'poison' ELSE 'good' END, now() - interval '1 s' + i * interval '1 ms'
  FROM generate_series(1, 6) i;
SELECT count(test.send_one(pass)) FROM generate_series(1, 6) pass;
SELECT pass, id FROM test.sent ORDER BY pass;
SELECT id, attempts, next_attempt_at > now() AS later, error FROM test.outbox ORDER BY id;
-- It comes back when its pause has ended, eight times in all.
DO $$
BEGIN
    FOR pass IN 1..20 LOOP
        UPDATE test.outbox SET next_attempt_at = now() WHERE next_attempt_at > now();
        PERFORM test.send_one(pass);
    END LOOP;
END $$;
SELECT id, attempts FROM test.outbox ORDER BY id;
INSERT INTO test.outbox (id, topic, next_attempt_at) VALUES (7, 'good', now());
SELECT test.send_one(99);
SELECT pass, id FROM test.sent WHERE pass = 99;

-- A consumer: each message has a savepoint, so that one that fails takes no other along, nor its record.
CREATE TABLE test.applied (amount numeric NOT NULL);
CREATE TABLE test.inbox (
    id              text PRIMARY KEY,
    amount          numeric,
    attempts        int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    error           text
);
CREATE PROCEDURE test.take_messages() LANGUAGE plpgsql AS $$
DECLARE
    message test.inbox;
BEGIN
    FOR message IN
        SELECT * FROM test.inbox WHERE attempts < 5 AND next_attempt_at <= now()
         ORDER BY next_attempt_at LIMIT 100 FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            IF idem_once(message.id, scope => 'inbox') THEN
                INSERT INTO test.applied VALUES (message.amount);
            END IF;
            DELETE FROM test.inbox WHERE id = message.id;
        EXCEPTION
            WHEN serialization_failure OR deadlock_detected THEN
                RAISE;
            WHEN OTHERS THEN
                UPDATE test.inbox
                   SET attempts = attempts + 1, error = SQLERRM,
                       next_attempt_at = now() + idem_backoff(attempts + 1, '5 seconds', '1 hour')
                 WHERE id = message.id;
        END;
    END LOOP;
END $$;
INSERT INTO test.inbox (id, amount) VALUES ('m1', NULL), ('m2', 1), ('m3', NULL), ('m4', 2);
CALL test.take_messages();
SELECT amount FROM test.applied ORDER BY amount;
SELECT key FROM idempotency.records WHERE scope = 'inbox' ORDER BY key;
SELECT id, attempts, next_attempt_at > now() AS later FROM test.inbox ORDER BY id;
DO $$
BEGIN
    FOR pass IN 1..10 LOOP
        UPDATE test.inbox SET next_attempt_at = now();
        CALL test.take_messages();
    END LOOP;
END $$;
SELECT id, attempts FROM test.inbox ORDER BY id;
-- Once it is mended it is applied, for it was never recorded.
UPDATE test.inbox SET amount = 3, attempts = 0, next_attempt_at = now() WHERE id = 'm1';
CALL test.take_messages();
SELECT amount FROM test.applied ORDER BY amount;

DROP TABLE test.outbox, test.sent, test.applied, test.inbox;
DROP FUNCTION test.send_one;
DROP PROCEDURE test.take_messages;
