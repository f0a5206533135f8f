-- [BEGIN + idem_begin] [payment] [idem_complete + COMMIT], with all that a record usually keeps
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
\startpipeline
BEGIN;
SELECT outcome FROM idem_begin(:key::text || '-5b1c-7d3e-8f00',
    jsonb_build_object('account', :account::bigint, 'amount', :amount::bigint), scope => 'bench');
\endpipeline
INSERT INTO bench.payment (account, amount) VALUES (:account, :amount);
\startpipeline
SELECT idem_complete(:key::text || '-5b1c-7d3e-8f00', 201, :body::text,
    '{"Content-Type": "application/json"}', scope => 'bench');
COMMIT;
\endpipeline
