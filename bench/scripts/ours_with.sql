-- [idem_begin, payment and idem_complete as one WITH]
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
WITH claim AS MATERIALIZED (
    SELECT outcome FROM idem_begin(:key::text || '-5b1c-7d3e-8f00', scope => 'bench', same_statement => true)
), work AS (
    INSERT INTO bench.payment (account, amount) SELECT :account::bigint, :amount::bigint
      FROM claim WHERE outcome = 'execute' RETURNING id
), done AS (
    SELECT idem_complete(:key::text || '-5b1c-7d3e-8f00', 201, :body::text, scope => 'bench') FROM work
)
SELECT outcome FROM claim LEFT JOIN done ON true;
