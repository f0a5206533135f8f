-- [idem_begin] [BEGIN] [payment] [idem_complete by token] [COMMIT], two commits
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
SELECT token FROM idem_begin(:key::text || '-5b1c-7d3e-8f00', scope => 'bench') \gset
BEGIN;
INSERT INTO bench.payment (account, amount) VALUES (:account, :amount);
SELECT idem_complete(:key::text || '-5b1c-7d3e-8f00', 201, :body::text,
    scope => 'bench', token => :token);
COMMIT;
