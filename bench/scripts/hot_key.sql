-- Many sessions ask for one key. The executing one commits only after the others have got in_progress
-- a given number of times.
BEGIN;
SELECT (outcome = 'execute')::integer AS mine FROM idem_begin('hot', scope => 'bench') \gset
\if :mine
INSERT INTO bench.payment (account, amount) VALUES (1, 1);
SELECT bench.wait_for_duplicates(:duplicates);
SELECT idem_complete('hot', 201, :body::text, scope => 'bench');
\endif
COMMIT;
