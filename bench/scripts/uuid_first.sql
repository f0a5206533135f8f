-- [new key], [idem_begin, payment and idem_complete as one WITH]: the key is a UUID of version :version.
\set account random(0, 999999)
\set amount random(0, 9999)
SELECT bench.new_uuid(:version) AS key \gset
WITH claim AS MATERIALIZED (
    SELECT outcome FROM idem_begin(:key::text, scope => 'bench', same_statement => true)
), work AS (
    INSERT INTO bench.payment (account, amount) SELECT :account::bigint, :amount::bigint
      FROM claim WHERE outcome = 'execute' RETURNING id
), done AS (
    SELECT idem_complete(:key::text, 201, :body::text, scope => 'bench') FROM work
)
SELECT outcome FROM claim LEFT JOIN done ON true;
