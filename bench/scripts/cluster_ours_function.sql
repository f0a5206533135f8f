-- [claim, payment and answer in a distributed function]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
SELECT bench.pay_once(:tenant, :key::text || '-5b1c-7d3e-8f00', :account, :amount, :body::text);
