-- [the same as a function]
\set account random(0, 999999)
\set amount random(0, 9999)
SELECT bench.pay(jsonb_build_object('account', :account::bigint, 'amount', :amount::bigint));
