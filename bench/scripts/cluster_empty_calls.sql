-- [BEGIN + a call that does nothing] [payment] [another + COMMIT], for a tenant of a cluster
\set account random(0, 999999)
\set amount random(0, 9999)
\set key random(1000000000000000000, 9223372036854775807)
\startpipeline
BEGIN;
SELECT * FROM bench.do_nothing(:tenant, :key::text || '-5b1c-7d3e-8f00');
\endpipeline
INSERT INTO bench.tenant_payment (tenant, id, account, amount)
    VALUES (:tenant, :key::text || '-5b1c-7d3e-8f00', :account, :amount);
\startpipeline
SELECT * FROM bench.do_nothing(:tenant, :body::text);
COMMIT;
\endpipeline
