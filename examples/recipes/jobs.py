"""Jobs at set times: each node schedules them, and each is done once.

jobs.py totals 2026-01-01    from each node's crontab: schedules the job of that day. Twice is once
jobs.py                      does what is due, until SIGTERM

The key is the job and the moment for which it was due. A failure is repeated by the scope's policy.
"""

import json
import signal
import sys

from psycopg_pool import ConnectionPool

from idempotency_postgres import worker
from idempotency_postgres.psycopg import database

SCHEMA = """
CREATE TABLE charge (day date NOT NULL, amount integer NOT NULL);
CREATE TABLE daily_total (day date PRIMARY KEY, amount bigint NOT NULL);
-- A job is repeated for a week, and remembered for a year.
SELECT idem_policy_set('jobs', store_request => true, ttl => '7 days', retention => '1 year',
                       retry_base => '1 minute', retry_cap => '1 hour');
"""

QUEUE = """
WITH begun AS MATERIALIZED (SELECT token FROM idem_begin(%(key)s, %(request)s, scope => 'jobs') WHERE outcome = 'execute')
SELECT idem_fail(%(key)s, 'scheduled', retryable => true, retry_after => '0', scope => 'jobs', token => token),
       pg_notify('jobs', '')
  FROM begun
"""
KNOWN = "SELECT status FROM idem_get(%(key)s, scope => 'jobs')"


def schedule(tx, job, moment):
    values = {"key": f"{job}:{moment}", "request": json.dumps({"job": job, "moment": moment})}
    if tx.execute(KNOWN, values).fetchone() in (None, (None,)):
        tx.execute(QUEUE, values)


def totals(tx, day):
    """Its effects commit together with the result."""
    tx.execute("INSERT INTO daily_total SELECT %(day)s, coalesce(sum(amount), 0) FROM charge WHERE day = %(day)s", {"day": day})


JOBS = {"totals": totals}


def runner(pool, poll=5.0):
    return worker(database(pool), "jobs", lambda work: JOBS[work.request["job"]](work.client, work.request["moment"]), poll=poll, channel="jobs")


def main():
    with ConnectionPool("", min_size=2, max_size=4, open=True) as pool:
        if len(sys.argv) > 1:
            with pool.connection() as connection:
                return schedule(connection, *sys.argv[1:])
        own = runner(pool)
        signal.signal(signal.SIGTERM, lambda *_: own.stop())
        own.run()


if __name__ == "__main__":
    main()
