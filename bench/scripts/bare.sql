-- [BEGIN] [payment] [COMMIT]: no protection at all
\set account random(0, 999999)
\set amount random(0, 9999)
BEGIN;
INSERT INTO bench.payment (account, amount) VALUES (:account, :amount);
COMMIT;
