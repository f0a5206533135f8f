-- [BEGIN] [payment with a unique key, ON CONFLICT DO NOTHING] [COMMIT]; keeps no response
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
BEGIN;
INSERT INTO bench.keyed_payment (account, amount, request_key)
    VALUES (:account, :amount, :key::text || '-5b1c-7d3e-8f00')
    ON CONFLICT (request_key) DO NOTHING;
COMMIT;
