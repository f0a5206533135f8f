-- The keys that bench.complete_payments() makes, with their requests.
\set number random(1, :records)
SELECT body, headers, status_code, outcome
    FROM idem_begin(bench.key_of(:number), jsonb_build_object('payment', :number::bigint),
                    scope => 'bench') \gset got_
