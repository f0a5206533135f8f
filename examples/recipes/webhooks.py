"""Webhooks that the system sends: signed, repeated for three days, given up, and sent again by hand.

webhooks.py                     sends what is due, until SIGTERM
webhooks.py again KEY REASON    sends one again that was given up

A delivery is a record. Its key is the event and the receiver, its policy is the schedule.
"""

import base64
import hashlib
import hmac
import json
import signal
import sys
import time
import urllib.error
import urllib.request

from psycopg_pool import ConnectionPool

from idempotency_postgres import Answer, worker
from idempotency_postgres.psycopg import database

SCHEMA = """
CREATE TABLE receiver (id text PRIMARY KEY, url text NOT NULL, secret bytea NOT NULL);
-- Again after 2, 4, 8 ... minutes, then every 6 hours. The first attempt is the queueing.
SELECT idem_policy_set('webhooks', store_request => true, ttl => '5 days', retention => '30 days',
                       retry_base => '1 minute', retry_cap => '6 hours', retry_jitter => 'none', max_attempts => 21);
"""

QUEUE = """
WITH begun AS MATERIALIZED (
    SELECT outcome, token FROM idem_begin(idem_key(%(event)s, %(receiver)s), %(body)s, scope => 'webhooks', principal => %(receiver)s)
), queued AS MATERIALIZED (
    SELECT idem_fail(idem_key(%(event)s, %(receiver)s), 'queued', retryable => true, retry_after => '0',
                     scope => 'webhooks', principal => %(receiver)s, token => token)
      FROM begun WHERE outcome = 'execute'
)
SELECT pg_notify('webhooks', '') FROM queued
"""


KNOWN = "SELECT status FROM idem_get(idem_key(%(event)s, %(receiver)s), scope => 'webhooks', principal => %(receiver)s)"


def queue(tx, event, receiver, body):
    """In the transaction of the change that the event tells of. Twice is once."""
    values = {"event": event, "receiver": receiver, "body": json.dumps(body)}
    if tx.execute(KNOWN, values).fetchone() in (None, (None,)):
        tx.execute(QUEUE, values)


def signature(secret, event, at, body):
    """As of standardwebhooks.com."""
    signed = hmac.new(secret, f"{event}.{at}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed.digest()).decode()


def sender(pool, poll=5.0):
    """A worker. Each attempt has the same id and body, and a signature of its own time."""

    def send(work):
        with pool.connection() as connection:
            url, secret = connection.execute("SELECT url, secret FROM receiver WHERE id = %s", (work.principal,)).fetchone()
        event, at, body = work.key.partition(":")[0], str(int(time.time())), json.dumps(work.request).encode()
        fields = {"Content-Type": "application/json", "webhook-id": event, "webhook-timestamp": at}
        fields["webhook-signature"] = signature(secret, event, at, body)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, fields), timeout=10) as answer:
                return Answer(answer.status)
        except urllib.error.HTTPError as error:
            if error.code == 410:
                return Answer(410)  # the receiver wants no more of them: it is not repeated
            raise

    return worker(database(pool), "webhooks", send, mode="leased", size=4, poll=poll, channel="webhooks")


def send_again(pool, key, reason):
    """One that was given up, or refused. It is due immediately."""
    with pool.connection() as connection:
        connection.execute(
            "SELECT idem_resolve(key, 'reopen', scope => scope, principal => principal, reason => %s), pg_notify('webhooks', '')"
            " FROM idempotency.records WHERE scope = 'webhooks' AND key = %s", (reason, key),
        )  # fmt: skip


def main():
    with ConnectionPool("", min_size=2, max_size=10, open=True) as pool:
        if sys.argv[1:2] == ["again"]:
            return send_again(pool, *sys.argv[2:])
        own = sender(pool)
        signal.signal(signal.SIGTERM, lambda *_: own.stop())
        own.run()


if __name__ == "__main__":
    main()
