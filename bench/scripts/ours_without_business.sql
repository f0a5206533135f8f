-- [BEGIN + idem_begin] [idem_complete] [COMMIT]: nothing that would dilute what records cost
\set key random(1000000000000000000, 9223372036854775807)
\startpipeline
BEGIN;
SELECT outcome FROM idem_begin(:key::text || '-5b1c-7d3e-8f00', scope => 'bench',
    ttl => make_interval(secs => :ttl));
\endpipeline
SELECT idem_complete(:key::text || '-5b1c-7d3e-8f00', 201, :body::text, scope => 'bench');
COMMIT;
