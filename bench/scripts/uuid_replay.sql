-- Of the records numbered :oldest to :records, whose keys are UUIDs of version :version.
\set number random(:oldest, :records)
SELECT body, status_code, outcome
    FROM idem_begin(bench.uuid_of_number(:version, :number), scope => 'bench') \gset got_
