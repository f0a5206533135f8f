-- Promise: a batch of a sweep reads only the records that it removes, not the whole backlog each time,
-- also in a small table and with any plan.
\a\pset footer off

-- One batch of 100, of the 2,000 that are there.
CREATE FUNCTION test.read_by(index regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE removed bigint; entries bigint := pg_stat_get_xact_tuples_returned(index);
BEGIN
    removed := idem_cleanup(100);
    entries := pg_stat_get_xact_tuples_returned(index) - entries;
    RETURN format('%s removed, %s', removed, CASE WHEN entries < 3 * removed THEN 'and no more was read' ELSE 'read: ' || entries END);
END $$;

-- All expired, and the statistics know it.
SELECT count(*) FROM generate_series(1, 2000) i, idem_once(i::text, 'small') once;
UPDATE idempotency.record SET expires_at = now() - interval '1 hour', retained_until = now() - interval '1 hour' + key::int * interval '1 ms'
 WHERE scope = 'small';
VACUUM ANALYZE idempotency.record;
SELECT test.read_by('idempotency.record_retained_until');
DELETE FROM idempotency.record WHERE scope = 'small';

-- The same for attempts and decisions.
INSERT INTO idempotency.attempt (scope, principal, key, attempt, token, begun, ended, how, retained_until)
SELECT 'small', '', i::text, 1, i, now() - interval '2 hours', now() - interval '2 hours', 'failed', now() - interval '1 hour' + i * interval '1 ms'
  FROM generate_series(1, 2000) i;
VACUUM ANALYZE idempotency.attempt;
SELECT test.read_by('idempotency.attempt_retained_until');
DELETE FROM idempotency.attempt WHERE scope = 'small';
-- Decisions go in the order of their links, which is read once more than they are removed.
TRUNCATE idempotency.audit, idempotency.audit_chain;
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
INSERT INTO idempotency.audit (decided_at, action, role, decided_by, acting_as)
SELECT now() - interval '9 years' + i * interval '1 ms', 'forget', 'nobody', 'nobody', 'nobody' FROM generate_series(1, 2000) i;
SELECT linked FROM idempotency.link_decisions(2000, false);
VACUUM ANALYZE idempotency.audit;
SELECT test.read_by('idempotency.audit_number');
TRUNCATE idempotency.audit, idempotency.audit_chain;
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
