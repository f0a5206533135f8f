-- Promise: claims follow savepoints. A rollback to a savepoint undoes its calls: the key is free again,
-- or still claimed, exactly as before.
\a\pset footer off

-- A claim begun inside is gone, with its lock.
BEGIN;
SAVEPOINT s;
SELECT token AS dead FROM idem_begin('begun', '{"amount": 5}', 'savepoint') \gset
ROLLBACK TO s;
SELECT keys FROM test.locks();
SAVEPOINT t;
SELECT idem_complete('begun', 200, scope => 'savepoint', token => :dead);
\echo :SQLSTATE
ROLLBACK TO t;
SELECT outcome, attempt FROM idem_begin('begun', '{"amount": 6}', 'savepoint');
SELECT idem_complete('begun', 200, 'second', scope => 'savepoint');
COMMIT;
SELECT test.seen(c) FROM idem_begin('begun', '{"amount": 6}', 'savepoint') c;

-- A completion inside is undone: the claim is open again and guarded, and can end otherwise.
BEGIN;
SELECT outcome FROM idem_begin('completed', scope => 'savepoint');
SAVEPOINT s;
SELECT idem_complete('completed', 200, 'first', scope => 'savepoint');
SELECT outcome FROM idem_begin('completed', scope => 'savepoint');
ROLLBACK TO s;
SELECT outcome FROM idem_begin('completed', scope => 'savepoint');
SELECT keys FROM test.locks();
SELECT idem_fail('completed', 'second', scope => 'savepoint');
COMMIT;
SELECT test.seen(c) FROM idem_begin('completed', scope => 'savepoint') c;
-- The same for a claim that is then left open: it is leased, with its token.
BEGIN;
SELECT token FROM idem_begin('left', scope => 'savepoint') \gset
SAVEPOINT s;
SELECT idem_complete('left', 200, 'first', scope => 'savepoint');
ROLLBACK TO s;
COMMIT;
SELECT outcome FROM idem_begin('left', scope => 'savepoint');
SELECT idem_complete('left', 200, scope => 'savepoint', token => :token);

-- A release inside is undone.
BEGIN;
SELECT outcome FROM idem_begin('released', scope => 'savepoint');
SAVEPOINT s;
SELECT idem_release('released', 'savepoint');
SAVEPOINT t;
SELECT idem_complete('released', 200, scope => 'savepoint');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT keys FROM test.locks();
SELECT idem_complete('released', 200, 'still mine', scope => 'savepoint');
COMMIT;
SELECT test.seen(c) FROM idem_begin('released', scope => 'savepoint') c;

-- Released inside, begun again inside, rolled back: the first claim is back with its token.
BEGIN;
SELECT token AS first FROM idem_begin('again', '{"amount": 5}', 'savepoint') \gset
SAVEPOINT s;
SELECT idem_release('again', 'savepoint');
SELECT outcome, attempt, token <> :first AS other_token FROM idem_begin('again', '{"amount": 6}', 'savepoint');
SELECT idem_complete('again', 200, 'undone', scope => 'savepoint');
ROLLBACK TO s;
SELECT outcome FROM idem_begin('again', '{"amount": 6}', 'savepoint');
SELECT idem_complete('again', 200, 'kept', scope => 'savepoint', token => :first);
COMMIT;
SELECT test.seen(c) FROM idem_begin('again', '{"amount": 5}', 'savepoint') c;
-- Released inside, begun again inside, kept: the second claim stands.
BEGIN;
SELECT token AS first FROM idem_begin('anew', '{"amount": 5}', 'savepoint') \gset
SAVEPOINT s;
SELECT idem_release('anew', 'savepoint');
SELECT outcome, attempt FROM idem_begin('anew', '{"amount": 6}', 'savepoint');
RELEASE s;
SAVEPOINT t;
SELECT idem_complete('anew', 200, 'first', scope => 'savepoint', token => :first);
\echo :SQLSTATE
ROLLBACK TO t;
SELECT idem_complete('anew', 200, 'second', scope => 'savepoint');
COMMIT;
SELECT test.seen(c) FROM idem_begin('anew', '{"amount": 6}', 'savepoint') c;

-- A checkpoint inside is undone; one before it counts.
BEGIN;
SELECT token FROM idem_begin('checked', scope => 'savepoint') \gset
SELECT idem_checkpoint('checked', 'one', '1', 'savepoint') > now() AS written;
SAVEPOINT s;
SELECT idem_checkpoint('checked', 'two', '2', 'savepoint') > now() AS written;
ROLLBACK TO s;
COMMIT;
SELECT recovery_point, state FROM idempotency.records WHERE (scope, key) = ('savepoint', 'checked');
-- A first checkpoint that is undone leaves the claim unwritten but open.
BEGIN;
SELECT token FROM idem_begin('unchecked', scope => 'savepoint') \gset
SAVEPOINT s;
SELECT idem_checkpoint('unchecked', 'one', '1', 'savepoint') > now() AS written;
ROLLBACK TO s;
SELECT keys FROM test.locks();
COMMIT;
SELECT status, recovery_point FROM idempotency.records WHERE (scope, key) = ('savepoint', 'unchecked');
SELECT idem_complete('unchecked', 200, scope => 'savepoint', token => :token);

-- A claim begun in a released savepoint belongs to the transaction around it.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_begin('kept', scope => 'savepoint');
RELEASE s;
SELECT idem_complete('kept', 200, scope => 'savepoint');
COMMIT;
SELECT outcome FROM idem_begin('kept', scope => 'savepoint');
-- From then on no other savepoint's rollback takes it away.
BEGIN;
SAVEPOINT s;
SELECT token FROM idem_begin('safe', scope => 'savepoint', hold => true) \gset
RELEASE s;
SAVEPOINT t;
SELECT outcome FROM idem_begin('unsafe', scope => 'savepoint', hold => true);
ROLLBACK TO t;
SELECT * FROM test.locks();
SELECT idem_complete('safe', 200, scope => 'savepoint', token => :token);
COMMIT;
SELECT outcome FROM unnest('{safe,unsafe}'::text[]) k, idem_begin(k, scope => 'savepoint');
-- And to the savepoint around it: its rollback undoes the same.
BEGIN;
SAVEPOINT outer_one;
SAVEPOINT inner_one;
SELECT outcome FROM idem_begin('nested', scope => 'savepoint');
RELEASE inner_one;
SELECT outcome FROM idem_begin('nested', scope => 'savepoint');
ROLLBACK TO outer_one;
SELECT keys FROM test.locks();
SELECT outcome, attempt FROM idem_begin('nested', scope => 'savepoint');
ROLLBACK;
-- Nested deeper: begun at the top, completed two levels below, released, then rolled back.
BEGIN;
SELECT outcome FROM idem_begin('deep', scope => 'savepoint');
SAVEPOINT one;
SAVEPOINT two;
SELECT idem_complete('deep', 200, 'undone', scope => 'savepoint');
RELEASE two;
SELECT outcome FROM idem_begin('deep', scope => 'savepoint');
ROLLBACK TO one;
SELECT outcome FROM idem_begin('deep', scope => 'savepoint');
SAVEPOINT three;
SELECT idem_complete('deep', 200, 'kept', scope => 'savepoint');
RELEASE three;
COMMIT;
SELECT test.seen(c) FROM idem_begin('deep', scope => 'savepoint') c;

-- A takeover inside is undone: the record has its old token and attempt.
SELECT token AS old FROM idem_begin('taken', scope => 'savepoint') \gset
SELECT test.let_pass('1 hour', 'savepoint');
BEGIN;
SAVEPOINT s;
SELECT outcome, attempt FROM idem_begin('taken', scope => 'savepoint');
SELECT idem_complete('taken', 200, 'undone', scope => 'savepoint');
ROLLBACK TO s;
SELECT idem_complete('taken', 200, 'by the first holder', scope => 'savepoint', token => :old);
COMMIT;
SELECT test.seen(c) FROM idem_begin('taken', scope => 'savepoint') c;

-- The completion of a leased claim is undone likewise.
SELECT token FROM idem_begin('leased', scope => 'savepoint') \gset
BEGIN;
SAVEPOINT s;
SELECT idem_complete('leased', 200, 'undone', scope => 'savepoint', token => :token);
ROLLBACK TO s;
SELECT idem_complete('leased', 200, 'kept', scope => 'savepoint', token => :token);
COMMIT;
SELECT test.seen(c) FROM idem_begin('leased', scope => 'savepoint') c;

-- An EXCEPTION block is a savepoint.
CREATE FUNCTION test.pay(key text, good boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    claim idem_claim := idem_begin(key, scope => 'savepoint');
BEGIN
    IF claim.outcome <> 'execute' THEN
        RETURN claim.outcome;
    END IF;
    BEGIN
        PERFORM idem_complete(key, 200, 'paid', scope => 'savepoint');
        IF NOT good THEN
            RAISE EXCEPTION 'no money';
        END IF;
    EXCEPTION WHEN raise_exception THEN
        PERFORM idem_fail(key, sqlerrm, scope => 'savepoint');
    END;
    RETURN 'done';
END $$;
SELECT test.pay('good', true), test.pay('bad', false);
SELECT test.pay('good', true), test.pay('bad', true);
SELECT test.seen(c) FROM unnest('{good,bad}'::text[]) k, idem_begin(k, scope => 'savepoint') c;
-- A claim begun in the block that fails is gone.
DO $$
BEGIN
    BEGIN
        PERFORM idem_begin('in block', scope => 'savepoint');
        RAISE EXCEPTION 'no money';
    EXCEPTION WHEN raise_exception THEN
        RAISE NOTICE 'then: %', (idem_begin('in block', scope => 'savepoint')).outcome;
    END;
END $$;
DROP FUNCTION test.pay;

-- The lock is kept as long as a rollback could undo the row that replaces it.
BEGIN;
SELECT outcome FROM idem_begin('lock', scope => 'savepoint');
SAVEPOINT s;
SELECT idem_complete('lock', scope => 'savepoint');
SELECT keys FROM test.locks();
RELEASE s;
COMMIT;
SELECT * FROM test.locks();
