"""Runs the recipes of idempotency.py against the database that libpq's variables name.

Prints TAP, and ends with status 1 if a test failed. Needs the extension, and makes its own table.
"""
import functools
import json
import threading
import time
from datetime import timedelta

import psycopg

import idempotency
from idempotency import Response

failures = 0
PRINCIPAL = {"scope": "python", "principal": "acme"}


def connect():
    return psycopg.connect()


def query(sql, *arguments):
    with connect() as conn:
        return conn.execute(sql, arguments).fetchone()[0]


def charge(key, conn, status=201):
    conn.execute("INSERT INTO charge (key) VALUES (%s)", (key,))
    return Response(status, b'{"for": "%s"}' % key.encode(), {"Location": "/charges/" + key})


def charges(key):
    return query("SELECT count(*) FROM charge WHERE key = %s", key)


def sender(key, how=idempotency.transactionally, amount=1):
    return functools.partial(how, connect, key=key, request={"amount": amount}, **PRINCIPAL)


def test(function):
    global failures
    try:
        function()
        print("ok - python: " + function.__doc__, flush=True)
    except Exception as error:
        failures += 1
        print(f"not ok - python: {function.__doc__}\n# {error!r}", flush=True)


class DeafConnection(psycopg.Connection):
    """Loses the answer to its first COMMIT, which has been done."""
    deaf = True

    def commit(self):
        super().commit()
        if DeafConnection.deaf:
            DeafConnection.deaf = False
            self.close()
            raise psycopg.OperationalError("the answer to COMMIT is lost")


def repeat_is_replayed():
    """a repeat gets the first answer and does nothing"""
    for how, key in ((idempotency.transactionally, "repeat"), (idempotency.pipelined, "pipelined")):
        send = sender(key, how)
        first = send(functools.partial(charge, key))
        second = send(functools.partial(charge, key))
        assert first.status == second.status == 201 and first.body == second.body
        assert second.headers == first.headers | {"Idempotent-Replayed": "true"}, second
        assert charges(key) == 1


def other_payload_is_refused():
    """the same key with another payload is refused with 422"""
    sender("bound")(functools.partial(charge, "bound"))
    answer = sender("bound", amount=2)(functools.partial(charge, "bound"))
    assert answer.status == 422 and json.loads(answer.body)["status"] == 422, answer
    assert charges("bound") == 1


def duplicate_is_told_to_wait():
    """a duplicate of a running request is answered 409 with Retry-After"""
    with connect() as conn:
        idempotency.begin(conn, key="running", request={"amount": 1}, **PRINCIPAL)
        answer = sender("running")(functools.partial(charge, "running"))
        assert answer.status == 409 and int(answer.headers["Retry-After"]) >= 1, answer
    assert charges("running") == 0


def exception_frees_the_key():
    """an exception rolls the work back and frees the key"""
    def broken(conn):
        charge("broken", conn)
        raise ValueError("broken")

    for how in (idempotency.transactionally, idempotency.pipelined):
        try:
            sender("broken", how)(broken)
            raise AssertionError("the exception got lost")
        except ValueError:
            pass
    assert charges("broken") == 0
    assert sender("broken")(functools.partial(charge, "broken")).status == 201


def refusal_is_stored():
    """a refusal that the work returns is stored and replayed"""
    first = sender("declined")(lambda conn: Response(402, b"declined"))
    second = sender("declined")(functools.partial(charge, "declined"))
    assert (first.status, second.status, second.body) == (402, 402, b"declined")
    assert charges("declined") == 0


def failure_without_a_status_is_500():
    """a failure that was stored without a status is sent as a problem document"""
    with connect() as conn:
        claim = idempotency.begin(conn, key="failed", request={"amount": 1}, **PRINCIPAL)
        conn.execute("SELECT idem_fail('failed', 'no', scope => %s, principal => %s, token => %s)",
                     (PRINCIPAL["scope"], PRINCIPAL["principal"], claim.token))
    answer = sender("failed")(functools.partial(charge, "failed"))
    assert answer.status == 500 and answer.headers["Idempotent-Replayed"] == "true", answer
    assert json.loads(answer.body)["type"] == "/problems/idempotency/failed", answer
    assert charges("failed") == 0


def lost_commit_is_asked_for():
    """after a COMMIT whose answer got lost the work is not done again"""
    answer = idempotency.transactionally(DeafConnection.connect, functools.partial(charge, "lost"),
                                         key="lost", request={"amount": 1}, **PRINCIPAL)
    assert not DeafConnection.deaf
    assert answer.status == 201 and answer.headers["Idempotent-Replayed"] == "true", answer
    assert charges("lost") == 1


def terminated_backend_is_survived():
    """after the connection broke in the middle the work is done once"""
    attempts = []

    def work(conn):
        attempts.append(conn)
        response = charge("terminated", conn)
        if len(attempts) == 1:
            query("SELECT pg_terminate_backend(%s, 10000)", conn.info.backend_pid)
        return response

    assert sender("terminated")(work).status == 201
    assert len(attempts) == 2 and charges("terminated") == 1


def heartbeat_keeps_the_lease():
    """a leased claim outlives its lease as long as its heart beats, and is completed"""
    lease = timedelta(seconds=10)  # a late heartbeat has three of them
    answers = []

    def slow(claim, _):
        time.sleep(1.1 * lease.total_seconds())
        answers.append(send(slow).status)
        return Response(201, b"done")

    send = functools.partial(sender("slow", idempotency.leased), lease=lease)
    assert send(slow).status == 201
    assert answers == [409], answers
    assert send(slow).headers["Idempotent-Replayed"] == "true"


def failed_attempt_resumes():
    """a failed attempt of a leased claim is resumed at its checkpoint"""
    def charged_then_down(claim, checkpoint):
        checkpoint("charged", {"charge": "ch_1"})
        raise ConnectionError("the mail server is down")

    def rest(claim, _):
        assert claim.attempt == 2 and claim.recovery_point == "charged"
        assert claim.error == "the mail server is down"
        return Response(201, claim.state["charge"].encode())

    send = functools.partial(sender("steps", idempotency.leased), lease=timedelta(seconds=30))
    try:
        send(charged_then_down)
    except ConnectionError:
        pass
    answer = send(rest)
    while answer.status == 503:  # the pause before the next attempt
        time.sleep(0.05)
        answer = send(rest)
    assert (answer.status, answer.body) == (201, b"ch_1"), answer


def message_is_applied_once():
    """of a message that four consumers get at once one applies it"""
    results = []

    def consume():
        apply = functools.partial(charge, "message")
        results.append(idempotency.consume(connect, "message", apply, scope="events"))

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for thread in consumers:
        thread.start()
    for thread in consumers:
        thread.join()
    assert sorted(results) == [False, False, False, True], results
    assert charges("message") == 1


with connect() as setup:
    setup.execute("CREATE TABLE charge (key text NOT NULL)")
    setup.execute("SELECT idem_policy_set('python', retry_base => '20 ms', retry_cap => '20 ms')")
for one in (repeat_is_replayed, other_payload_is_refused, duplicate_is_told_to_wait,
            exception_frees_the_key, refusal_is_stored, failure_without_a_status_is_500,
            lost_commit_is_asked_for,
            terminated_backend_is_survived, heartbeat_keeps_the_lease, failed_attempt_resumes,
            message_is_applied_once):
    test(one)
raise SystemExit(failures > 0)
