-- [key, payment and response in a function]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
SELECT bench.pay_with_key(:key::text || '-5b1c-7d3e-8f00',
    jsonb_build_object('account', :account::bigint, 'amount', :amount::bigint));
