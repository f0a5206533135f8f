"""An outbox: events that leave if their transaction commits. One that cannot be published delays no other.

outbox.py                  publishes what is due, until SIGTERM
outbox.py parked           shows the events that were given up
outbox.py again REASON     publishes those again
"""

import json
import signal
import sys

from psycopg_pool import ConnectionPool

from idempotency_postgres import worker
from idempotency_postgres.psycopg import database

SCHEMA = """
-- A lease of 30 s limits the publisher. After 8 attempts, of which the first is the queueing, an event is parked.
SELECT idem_policy_set('outbox/*', store_request => true, lease => '30 s', ttl => '7 days', retention => '30 days',
                       retry_base => '5 s', retry_cap => '1 hour', max_attempts => 8);
"""

EMIT = """
WITH begun AS MATERIALIZED (
    SELECT outcome, token FROM idem_begin(%(id)s, %(body)s, scope => 'outbox/' || %(topic)s)
), queued AS MATERIALIZED (
    SELECT idem_fail(%(id)s, 'queued', retryable => true, retry_after => '0', scope => 'outbox/' || %(topic)s, token => token)
      FROM begun WHERE outcome = 'execute'
)
SELECT pg_notify('outbox', '') FROM queued
"""

PARKED = "SELECT scope, key, error FROM idempotency.exhausted WHERE scope LIKE 'outbox/%%' ORDER BY scope, key"


def emit(tx, topic, id, body):
    """In the transaction that the event tells of. `id` is new: that of the changed row, for example."""
    tx.execute(EMIT, {"topic": topic, "id": id, "body": json.dumps(body)})


def relay(pool, publish, poll=1.0):
    """A worker; any number of them may run. `publish(topic, id, body)` raises if the broker has not taken the event."""

    def handle(work):
        publish(work.scope.removeprefix("outbox/"), work.key, work.request)

    return worker(database(pool), "outbox/*", handle, mode="leased", size=4, poll=poll, channel="outbox")


def again(connection, reason):
    """The parked events: each is due immediately."""
    for scope, key, _ in connection.execute(PARKED).fetchall():
        connection.execute("SELECT idem_resolve(%s, 'reopen', scope => %s, reason => %s)", (key, scope, reason))
    connection.execute("NOTIFY outbox")


def main(publish=lambda topic, id, body: print(topic, id, json.dumps(body), flush=True)):
    with ConnectionPool("", min_size=2, max_size=10, open=True) as pool:
        if sys.argv[1:]:
            with pool.connection() as connection:
                if sys.argv[1] == "again":
                    return again(connection, *sys.argv[2:])
                return print(*connection.execute(PARKED).fetchall(), sep="\n")
        own = relay(pool, publish)
        signal.signal(signal.SIGTERM, lambda *_: own.stop())
        own.run()


if __name__ == "__main__":
    main()
