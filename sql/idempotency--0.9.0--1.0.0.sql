-- From 0.9.0, which had the protocol, policies and fingerprints, to 1.0.0: workers with their
-- journal, statistics, and views for operators.

\echo Use "ALTER EXTENSION idempotency UPDATE TO '1.0.0'" to load this file. \quit

SET LOCAL search_path TO pg_catalog, pg_temp;

-- Changes nothing, but tells every session to compare its library's version with ours again.
-- Callers may go on reading and writing meanwhile.
ALTER TABLE idempotency.record RESET (parallel_workers);

-- The sweeper's journal: exactly one row.
CREATE TABLE idempotency.journal (
    last_run      timestamptz,
    last_duration interval,
    last_rows     bigint,
    total_rows    bigint NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    last_error    text,
    last_error_at timestamptz
);
COMMENT ON TABLE idempotency.journal IS 'what the sweeper last did in this database; read it through idempotency.sweeper';
INSERT INTO idempotency.journal DEFAULT VALUES;
CREATE UNIQUE INDEX journal_one_row ON idempotency.journal ((true));

-- Who executes something now. A leased claim is a row; a transactional one is known by its lock
-- only, for its row is not written yet.
CREATE VIEW idempotency.in_flight AS
SELECT 'leased' AS kind, scope, principal, key, attempt, holder, NULL::integer AS pid,
       NULL::text AS application_name, claimed_at AS since,
       pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) claimed_at AS age, lease_until
  FROM idempotency.record
 WHERE status OPERATOR(pg_catalog.=) 'i' AND lease_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
UNION ALL
SELECT CASE WHEN l.pid IS NULL THEN 'prepared' ELSE 'transactional' END, NULL, NULL, NULL, NULL, NULL,
       l.pid, a.application_name, a.xact_start,
       pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.xact_start, NULL
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
 WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.objsubid OPERATOR(pg_catalog.=) 18756
   AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
   AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d
                                           WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());
COMMENT ON VIEW idempotency.in_flight IS 'leased claims, and transactions that hold the lock of a key';

CREATE VIEW idempotency.abandoned AS
SELECT scope, principal, key, CASE WHEN no_takeover THEN 'unknown' ELSE 'in_progress' END AS status,
       attempt, holder, recovery_point, claimed_at, lease_until,
       pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) lease_until AS overdue
  FROM idempotency.record
 WHERE status OPERATOR(pg_catalog.=) 'i' AND lease_until OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp();
COMMENT ON VIEW idempotency.abandoned IS 'claims whose lease is over and which nobody has taken over';

CREATE VIEW idempotency.sweeper AS
SELECT pg_catalog.current_database() AS database, j.last_run, j.last_duration, j.last_rows, j.total_rows,
       (SELECT pg_catalog.count(*) FROM idempotency.record r
         WHERE r.retained_until OPERATOR(pg_catalog.<=)
               (pg_catalog.now() OPERATOR(pg_catalog.-)
                COALESCE(pg_catalog.current_setting('idempotency.cleanup_grace', true), '0')::interval)
           AND r.status OPERATOR(pg_catalog.<>) 'i') AS backlog,
       j.failures, j.last_error, j.last_error_at,
       (SELECT pg_catalog.min(a.pid) FROM pg_catalog.pg_stat_activity a
         WHERE a.backend_type OPERATOR(pg_catalog.=) 'idempotency launcher') AS launcher_pid
  FROM idempotency.journal j;
COMMENT ON VIEW idempotency.sweeper IS 'what the sweeper last did in this database, and what it has to do';

CREATE FUNCTION idempotency.scope_stats(
    OUT scope text,
    OUT executed bigint,
    OUT replayed bigint,
    OUT in_progress bigint,
    OUT mismatches bigint,
    OUT takeovers bigint,
    OUT retries bigint,
    OUT retry_later bigint,
    OUT exhausted bigint,
    OUT expired bigint,
    OUT unknown bigint,
    OUT completed bigint,
    OUT failed bigint,
    OUT waits bigint,
    OUT wait_micros bigint,
    OUT swept bigint,
    OUT since timestamptz
) RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_scope_stats';
COMMENT ON FUNCTION idempotency.scope_stats() IS 'counters of this database, a row per scope; null: scopes for which there was no room';

-- The total is the row in which "total" is true.
CREATE VIEW idempotency.stats AS
SELECT scope, GROUPING(scope) OPERATOR(pg_catalog.=) 1 AS total,
       pg_catalog.sum(executed)::bigint AS executed,
       pg_catalog.sum(replayed)::bigint AS replayed,
       pg_catalog.sum(in_progress)::bigint AS in_progress,
       pg_catalog.sum(mismatches)::bigint AS mismatches,
       pg_catalog.sum(takeovers)::bigint AS takeovers,
       pg_catalog.sum(retries)::bigint AS retries,
       pg_catalog.sum(retry_later)::bigint AS retry_later,
       pg_catalog.sum(exhausted)::bigint AS exhausted,
       pg_catalog.sum(expired)::bigint AS expired,
       pg_catalog.sum(unknown)::bigint AS unknown,
       pg_catalog.sum(completed)::bigint AS completed,
       pg_catalog.sum(failed)::bigint AS failed,
       pg_catalog.sum(waits)::bigint AS waits,
       pg_catalog.sum(wait_micros)::double precision OPERATOR(pg_catalog./) 1000000 AS wait_seconds,
       pg_catalog.sum(swept)::bigint AS swept,
       pg_catalog.min(since) AS since
  FROM idempotency.scope_stats()
 GROUP BY GROUPING SETS ((scope), ());
COMMENT ON VIEW idempotency.stats IS 'what idem_begin decided and what came of it, per scope and in total';

CREATE FUNCTION @extschema@.idem_stats_reset() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_stats_reset';
COMMENT ON FUNCTION @extschema@.idem_stats_reset() IS 'set the counters of this database to zero';

REVOKE ALL ON FUNCTION idempotency.scope_stats(), @extschema@.idem_stats_reset() FROM PUBLIC;

-- Those who monitor see everything but what clients sent and got.
GRANT USAGE ON SCHEMA idempotency TO pg_monitor;
GRANT SELECT ON idempotency.in_flight, idempotency.abandoned, idempotency.sweeper, idempotency.stats
    TO pg_monitor;
GRANT EXECUTE ON FUNCTION idempotency.scope_stats() TO pg_monitor;
GRANT SELECT (scope, principal, key, status, attempt, status_code, body_omitted, recovery_point, holder,
              held, created_at, claimed_at, finished_at, lease_until, next_attempt_at, expires_at,
              retained_until, resolved_by)
    ON idempotency.records TO pg_monitor;
