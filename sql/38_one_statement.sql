-- Claim, work and answer in one statement, as docs/functions.md shows it.
\pset format unaligned
\pset footer off
CREATE TABLE one_payment (id int GENERATED ALWAYS AS IDENTITY, amount int NOT NULL CHECK (amount > 0));
PREPARE pay(text, int, jsonb) AS
WITH claim AS MATERIALIZED (
    SELECT * FROM idem_begin($1, $3, scope => 'one', same_statement => true)
), work AS (
    INSERT INTO one_payment (amount) SELECT $2 FROM claim WHERE outcome = 'execute' RETURNING id
), done AS (
    SELECT id, idem_complete($1, 201, '{"payment": ' || id || '}', scope => 'one') AS stored FROM work
)
SELECT outcome, coalesce(201 * stored::int, status_code) AS status_code,
       coalesce('{"payment": ' || id || '}', convert_from(body, 'UTF8')) AS body
  FROM claim LEFT JOIN done ON true;
-- The first, its repeat in other words, another request.
EXECUTE pay('one', 5, '{"amount": 5}');
EXECUTE pay('one', 5, '{"amount": 5.0}');
EXECUTE pay('one', 6, '{"amount": 6}');
SELECT id, amount FROM one_payment;
-- Work that fails takes the claim along, and the key is free for another try.
\set VERBOSITY terse
EXECUTE pay('two', -5, '{"amount": -5}');
\echo :SQLSTATE
SELECT count(*) FROM idempotency.record WHERE scope = 'one' AND key = 'two';
EXECUTE pay('two', 7, '{"amount": 7}');
EXECUTE pay('two', 7, '{"amount": 7}');
-- An answer that can't be stored takes the work along.
BEGIN;
SET LOCAL idempotency.max_body_bytes = 3;
EXECUTE pay('three', 8, '{"amount": 8}');
\echo :SQLSTATE
ROLLBACK;
SELECT count(*) FROM one_payment WHERE amount = 8;
-- With plans that are made once for all calls.
SET plan_cache_mode = force_generic_plan;
EXECUTE pay('three', 8, '{"amount": 8}');
EXECUTE pay('three', 8, '{"amount": 8}');
RESET plan_cache_mode;
-- While another transaction holds the key, or the lease of another: nothing is done.
SELECT outcome FROM idem_begin('four', '{"amount": 9}', 'one');
EXECUTE pay('four', 9, '{"amount": 9}');
-- Under the other isolation levels.
BEGIN ISOLATION LEVEL SERIALIZABLE;
EXECUTE pay('five', 10, '{"amount": 10}');
EXECUTE pay('five', 10, '{"amount": 10}');
COMMIT;
SELECT amount FROM one_payment ORDER BY id;
-- Work that does nothing leaves a claim that nobody ends: a lease. So the answer hangs on the claim, not on
-- the work.
PREPARE refund(text, int) AS
WITH claim AS MATERIALIZED (
    SELECT * FROM idem_begin($1, scope => 'one refund', same_statement => true)
), work AS (
    DELETE FROM one_payment WHERE amount = $2 AND (SELECT outcome FROM claim) = 'execute' RETURNING id
), done AS (
    SELECT idem_complete($1, CASE WHEN count(work) = 0 THEN 404 ELSE 200 END, scope => 'one refund') AS stored
      FROM claim LEFT JOIN work ON true WHERE outcome = 'execute' HAVING count(claim) > 0
)
SELECT outcome, status_code, stored FROM claim LEFT JOIN done ON true;
EXECUTE refund('r1', 10);
EXECUTE refund('r1', 10);
EXECUTE refund('r2', 10);
EXECUTE refund('r2', 10);
SELECT key, status, status_code FROM idempotency.records WHERE scope = 'one refund' ORDER BY key;
DEALLOCATE ALL;
DROP TABLE one_payment;
