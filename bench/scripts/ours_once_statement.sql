-- [payment, if idem_once says so]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
INSERT INTO bench.payment (account, amount) SELECT :account::bigint, :amount::bigint
    FROM idem_once(:key::text || '-5b1c-7d3e-8f00', scope => 'bench', same_statement => true)
        AS first
    WHERE first;
