-- One transaction forgets a record, or gives a claim back, and begins the key again.
\a\pset footer off

-- leave(key): a failed attempt with a recovery point and a state.
CREATE FUNCTION pg_temp.leave(key text) RETURNS boolean LANGUAGE sql BEGIN ATOMIC
  SELECT outcome FROM idem_begin(leave.key, scope => 'forgetting');
  SELECT idem_checkpoint(leave.key, 'charged', '{"iban": "DE99"}', scope => 'forgetting');
  SELECT idem_fail(leave.key, 'busy', true, retry_after => '0', scope => 'forgetting');
END;
CREATE TEMP TABLE effect (key text);

SELECT pg_temp.leave('read-committed'), pg_temp.leave('repeatable-read'), pg_temp.leave('serializable'), pg_temp.leave('kept');

-- Forgotten, the next attempt is the first and inherits nothing.
BEGIN;
SELECT idem_forget('read-committed', 'forgetting');
SELECT outcome, attempt, recovery_point, state, error FROM idem_begin('read-committed', scope => 'forgetting');
SELECT idem_complete('read-committed', scope => 'forgetting');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_erase('repeatable-read', 'forgetting');
SELECT outcome, attempt, recovery_point, state, error FROM idem_begin('repeatable-read', scope => 'forgetting');
SELECT idem_release('repeatable-read', 'forgetting');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_forget('serializable', 'forgetting');
SELECT outcome, attempt, recovery_point, state, error FROM idem_begin('serializable', scope => 'forgetting');
SELECT idem_release('serializable', 'forgetting');
COMMIT;

-- Forgotten and brought back by a rollback to a savepoint.
BEGIN;
SAVEPOINT s;
SELECT idem_forget('kept', 'forgetting');
ROLLBACK TO s;
SELECT outcome, attempt, recovery_point, state, error FROM idem_begin('kept', scope => 'forgetting');
SAVEPOINT s;
INSERT INTO effect VALUES ('kept');
SELECT idem_release('kept', 'forgetting');
ROLLBACK TO s;
SELECT idem_complete('kept', 201, scope => 'forgetting');
COMMIT;

-- Given back with an effect, and begun again, by the same transaction.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome, attempt FROM idem_begin('again', '{"amount": 1}', scope => 'forgetting');
INSERT INTO effect VALUES ('again');
SELECT idem_release('again', 'forgetting');
SELECT outcome, attempt FROM idem_begin('again', '{"amount": 2}', scope => 'forgetting');
SAVEPOINT s;
SELECT idem_release('again', 'forgetting');
ROLLBACK TO s;
SELECT outcome, attempt FROM idem_begin('again', '{"amount": 2}', scope => 'forgetting');
SELECT idem_release('again', 'forgetting');
SELECT outcome, attempt FROM idem_begin('again', '{"amount": 3}', scope => 'forgetting');
SELECT idem_complete('again', 203, scope => 'forgetting');
COMMIT;

SELECT key, status, attempt, status_code, recovery_point, state, error FROM idempotency.records WHERE scope = 'forgetting' ORDER BY key;

SELECT count(idem_forget(key, scope)) FROM idempotency.records WHERE scope = 'forgetting';
