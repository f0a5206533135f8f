"""How a Python service uses the extension: three ways to do a thing once, with psycopg 3.

`connect` is whatever gives a connection as a context manager that commits at its end and rolls back
on an exception: psycopg.connect with its arguments, or the connection method of a pool.
"""
import json
import threading
import time
from dataclasses import dataclass, field

import psycopg
from psycopg.rows import namedtuple_row

ATTEMPTS = 5
HEARTBEAT = 1 / 3  # of the lease, so that one beat may get lost

BEGIN = """
SELECT c.*, idem_problem(c) AS problem
  FROM idem_begin(%(key)s, request => %(request)s::jsonb, scope => %(scope)s,
                  principal => %(principal)s, lease => %(lease)s) AS c
"""
COMPLETE = """
SELECT idem_complete(%(key)s, %(status)s, %(body)s::bytea, %(headers)s::jsonb, scope => %(scope)s,
                     principal => %(principal)s, token => %(token)s)
"""
FAIL = """
SELECT idem_fail(%(key)s, %(error)s, retryable => true, scope => %(scope)s,
                 principal => %(principal)s, token => %(token)s)
"""
EXTEND = """
SELECT idem_extend(%(key)s, %(token)s, scope => %(scope)s, principal => %(principal)s)
"""
CHECKPOINT = """
SELECT idem_checkpoint(%(key)s, %(point)s, %(state)s::jsonb, scope => %(scope)s,
                       principal => %(principal)s, token => %(token)s)
"""


@dataclass
class Response:
    status: int
    body: bytes
    headers: dict = field(default_factory=dict)


def transactionally(connect, work, **request):
    """Everything happens in this database: claim, work and answer commit together or not at all.

    `work(conn)` returns the Response to store, also a refusal that would come out the same again.
    What it raises rolls everything back, and the key is free.
    """
    return again(lambda: _transactionally(connect, work, **request))


def _transactionally(connect, work, **request):
    with connect() as conn:
        claim = begin(conn, **request)
        if claim.outcome != "execute":
            return answer_of(claim)
        response = work(conn)
        complete(conn, claim, response)
    return response


def pipelined(connect, work, **request):
    """The same with two round trips less: BEGIN goes with idem_begin, COMMIT with idem_complete."""
    return again(lambda: _pipelined(connect, work, **request))


def _pipelined(connect, work, **request):
    with connect() as conn, conn.pipeline():
        claim = begin(conn, **request)
        if claim.outcome != "execute":
            return answer_of(claim)
        response = work(conn)
        send_complete(conn, claim, response)  # its result is read with that of COMMIT
        conn.commit()
    return response


def leased(connect, work, lease, **request):
    """The work is elsewhere and may take long: the claim is committed first, then kept by its token.

    `work(claim, checkpoint)` starts where claim.recovery_point says. It may be run again after a
    crash, so what it calls has to know keys itself: derive one from ours.
    """
    with connect() as conn:
        claim = begin(conn, lease=lease, **request)
    if claim.outcome != "execute":
        return answer_of(claim)
    try:
        with Heartbeat(connect, claim, lease):
            response = work(claim, lambda point, state: checkpoint(connect, claim, point, state))
    except Exception as error:
        again(lambda: fail(connect, claim, str(error)))
        raise
    # The token makes a second call harmless, should the answer to the first get lost.
    again(lambda: complete_leased(connect, claim, response))
    return response


def consume(connect, event_id, apply, scope):
    """A message: applied at most once, in one transaction with the note that it was. True if now.

    Acknowledge it to the broker after this has returned, whatever it returned.
    """
    return again(lambda: _consume(connect, event_id, apply, scope))


def _consume(connect, event_id, apply, scope):
    with connect() as conn:
        first, = conn.execute("SELECT idem_once(%s, scope => %s)", (event_id, scope)).fetchone()
        if first:
            apply(conn)
    return first


def again(call):
    """Repeats what a lost connection, a deadlock or a serialization failure has ended.

    Also when the answer to COMMIT got lost, and nobody knows: the same key is told `replay` if it
    was done, and `execute` if not.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except psycopg.OperationalError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(0.01 * 2**attempt)


# ---- the statements ----

def begin(conn, *, key, request, scope, principal, lease=None):
    arguments = {"key": key, "request": json.dumps(request), "scope": scope,
                 "principal": principal, "lease": lease}
    return conn.cursor(row_factory=namedtuple_row).execute(BEGIN, arguments).fetchone()


def send_complete(conn, claim, response):
    return conn.execute(COMPLETE, names(claim) | {
        "status": response.status, "body": response.body, "headers": json.dumps(response.headers)})


def complete(conn, claim, response):
    send_complete(conn, claim, response).fetchone()


def complete_leased(connect, claim, response):
    with connect() as conn:
        complete(conn, claim, response)


def fail(connect, claim, error):
    with connect() as conn:
        conn.execute(FAIL, names(claim) | {"error": error})


def checkpoint(connect, claim, point, state):
    with connect() as conn:
        conn.execute(CHECKPOINT, names(claim) | {"point": point, "state": json.dumps(state)})


def names(claim):
    return {"key": claim.key, "scope": claim.scope, "principal": claim.principal,
            "token": claim.token}


def answer_of(claim):
    """The stored answer, byte for byte, or the problem document of a refusal or a failure."""
    headers = {"Idempotent-Replayed": "true"} if claim.outcome == "replay" else {}
    if claim.problem is None:
        return Response(claim.status_code, claim.body or b"", (claim.headers or {}) | headers)
    headers["Content-Type"] = "application/problem+json"
    if claim.outcome in ("in_progress", "retry_later"):
        headers["Retry-After"] = str(max(1, round(claim.retry_after or 1)))
    return Response(claim.problem["status"], json.dumps(claim.problem).encode(), headers)


class Heartbeat:
    """Prolongs the lease from a thread and a connection of its own until the work is done."""

    def __init__(self, connect, claim, lease):
        self.connect, self.claim = connect, claim
        self.pause = lease.total_seconds() * HEARTBEAT
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.beat, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def beat(self):
        while not self.done.wait(self.pause):
            try:
                with self.connect() as conn:
                    conn.execute(EXTEND, names(self.claim))
            except psycopg.OperationalError:
                continue  # the next beat may get through
            except psycopg.Error:
                return  # ID409: somebody has taken over, and idem_complete will say so
