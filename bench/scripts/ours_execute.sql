-- [idem_execute of a function in PL/pgSQL]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
SELECT outcome FROM idem_execute(:key::text || '-5b1c-7d3e-8f00', 'bench.pay(jsonb)',
    jsonb_build_object('account', :account::bigint, 'amount', :amount::bigint), scope => 'bench');
