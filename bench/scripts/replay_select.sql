-- The keys of the records 1 to :records, as bench.key_of() makes them.
\set key 1000000000000000000 + (random(1, :records) * 1103515245 % 2147483648) * 3800000000
SELECT body, status_code, status FROM bench.record_copy
    WHERE scope = 'bench' AND principal = '' AND key = :key::text || '-5b1c-7d3e-8f00' \gset got_
