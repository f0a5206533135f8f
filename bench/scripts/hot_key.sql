-- Many sessions ask for one key. The executing one waits until the others have been told so many
-- times that it is in progress, and only then commits.
BEGIN;
SELECT (outcome = 'execute')::integer AS mine FROM idem_begin('hot', scope => 'bench') \gset
\if :mine
INSERT INTO bench.payment (account, amount) VALUES (1, 1);
SELECT bench.wait_for_duplicates(:duplicates);
SELECT idem_complete('hot', 201, :body::text, scope => 'bench');
\endif
COMMIT;
