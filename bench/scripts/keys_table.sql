-- [BEGIN] [key ON CONFLICT DO NOTHING] [payment] [response] [COMMIT]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
BEGIN;
INSERT INTO bench.request_key (key) VALUES (:key::text || '-5b1c-7d3e-8f00')
    ON CONFLICT (key) DO NOTHING;
INSERT INTO bench.payment (account, amount) VALUES (:account, :amount);
UPDATE bench.request_key SET recovery_point = 'finished', status_code = 201, body = :body
    WHERE key = :key::text || '-5b1c-7d3e-8f00';
COMMIT;
