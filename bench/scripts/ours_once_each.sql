-- [1,000 keys in one call of idem_once_each]
\set key random(1000000000000000000, 9223372036854775807)
INSERT INTO bench.payment (account, amount) SELECT 1, 1
    FROM (SELECT count(*) AS keys
            FROM idem_once_each(ARRAY(SELECT :key::text || '-5b1c-7d3e-' || n FROM generate_series(1, 1000) n),
                                scope => 'bench', same_statement => true)) AS new
    WHERE keys = 1000;
