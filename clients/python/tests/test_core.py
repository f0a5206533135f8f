"""Tests that need no server."""

import gzip
import hashlib
import threading
import time

import asyncpg
import psycopg
import pytest
import sqlalchemy.exc

from idempotency_postgres import Options, keep_by_default, parse_key, quote_key
from idempotency_postgres.claim import stored_headers
from idempotency_postgres.deadline import Deadline, after_in_thread
from idempotency_postgres.errors import DatabaseLate, is_connection_lost, is_transient, sqlstate
from idempotency_postgres.heartbeat import ThreadHeartbeat
from idempotency_postgres.identity import BodyReader, digest, is_json, media_type, parts_of
from idempotency_postgres.problem import HttpProblem
from idempotency_postgres.statements import BEGIN, named, pyformat, text_array, untyped
from idempotency_postgres.wsgi import Idempotency


@pytest.mark.parametrize(
    "field, key",
    [
        ('"a b"', "a b"), (' \t"a" \t', "a"), ("bare", "bare"), ('"a,b"', "a,b"), ('"a\\"b\\\\"', 'a"b\\'),
        ('"a";v=1; b="x;\\""', "a"), ("pc%2D1", "pc%2D1"), ('"pc%2D1"', "pc%2D1"), ("x" * 255, "x" * 255),
        *((none, None) for none in (
            "", " ", '""', '"  "', '"a', 'a"', "a,b", "a;b", "a b", '"a" b', '"a", "b"', '"ä"', "ä", '"\t"', '"\\n"',
            '"a";', '"a";A=1', '"a" ;b', '"a";a= 1', '"a";a=1.2345', '"a";a=1234567890123456', "x" * 256, "a\\b", "a\n", '"a"\n', "١",
            '"a";a=١',
        )),
    ],
)  # fmt: skip
def test_key(field, key):
    assert parse_key(field) == key
    assert key is None or parse_key(quote_key(key)) == key


def test_long_fields_take_no_longer():
    before = time.process_time()
    for field in ('"' + '\\"' * 50000, '"a"' + ";a=1" * 30000 + ";", '"a"' + "; " * 30000, '"a";a=:' + "a" * 90000):
        assert parse_key(field) is None
    assert time.process_time() - before < 5  # quadratic time would be minutes


def test_what_is_kept():
    assert [s for s in (200, 201, 302, 400, 404, 408, 409, 422, 425, 429, 500, 503, 599) if keep_by_default(s)] == [
        200, 201, 302, 400, 404, 409, 422]  # fmt: skip


def test_headers_as_they_are_stored():
    fields = [("X-A", "1"), ("set-cookie", "s"), ("x-a", "2"), ("Connection", "close"), ("Mine", "x"), ("B", '"')]
    assert stored_headers(fields, ["mine"]) == '{"X-A": ["1", "2"], "B": "\\""}'


def test_media_types():
    types = ("Application/JSON; charset=utf-8", "application/vnd.x+json", "text/json", "application/jsonp", None)
    assert [is_json(media_type(one)) for one in types] == [True, True, False, False, False]


def test_digest_is_that_of_the_page():
    expected = hashlib.sha256(b"idempotency fingerprint 1\n4:POST\n2:/a\n10:text/plain\n2:\xffb\n").digest()
    assert digest("POST", "/a", "text/plain", b"\xffb") == expected
    assert len({digest("POST", *parts) for parts in (("/ab", None, b""), ("/a", "b", b""), ("/a", None, b"b"))}) == 3


@pytest.mark.parametrize("encoding, body", [("identity", b"x" * 101), ("gzip", gzip.compress(b"x" * 101)), ("gzip", gzip.compress(b"x" * 60) * 2)])
def test_the_limit_counts_what_is_decoded(encoding, body):
    reader = BodyReader(encoding, None, 101 if encoding == "identity" else 120)
    reader.feed(body)
    assert set(reader.body()) == {120}
    reader = BodyReader(encoding, None, 100)
    with pytest.raises(HttpProblem) as problem:
        reader.feed(body)
    assert problem.value.status == 413


def test_encodings():
    for encoding, status in (("br", 415), ("gzip, gzip", 415)):
        with pytest.raises(HttpProblem) as problem:
            BodyReader(encoding, None, 100)
        assert problem.value.status == status
    for body in (b"none", gzip.compress(b"{}")[:-3]):
        with pytest.raises(HttpProblem) as problem:
            reader = BodyReader("gzip", None, 100)
            reader.feed(body)
            reader.body()
        assert problem.value.status == 400


def test_errors_wherever_drivers_put_them():
    conflict = psycopg.errors.SerializationFailure()
    assert sqlstate(conflict) == "40001"
    assert sqlstate(sqlalchemy.exc.DBAPIError("", {}, conflict)) == "40001"
    wrapped = RuntimeError()
    wrapped.__cause__ = conflict
    assert is_transient(wrapped)
    assert is_connection_lost(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert is_connection_lost(asyncpg.ConnectionDoesNotExistError("x"))
    assert is_connection_lost(asyncpg.InterfaceError("connection is closed"))
    assert not is_connection_lost(asyncpg.InterfaceError("the server expects 1 argument for this query, 2 were passed"))
    assert is_connection_lost(ConnectionResetError())
    assert not is_connection_lost(ConnectionResetError(), from_handler=True)
    assert not is_connection_lost(TimeoutError(), from_handler=True)
    assert not is_transient(psycopg.errors.UniqueViolation())
    assert not is_transient(ValueError("payment declined"))


def test_statements_for_each_driver():
    assert "CAST(CAST(:p9 AS text) AS bigint) * interval '1 ms'" in named(BEGIN) and "$" not in named(BEGIN)
    assert "%(p6)s::text[]" in pyformat(BEGIN) and "$" not in pyformat(BEGIN) and "%" not in BEGIN
    assert "$9::text::bigint" in untyped(BEGIN) and "=> $3::bytea," in untyped(BEGIN)
    assert text_array(['a"b', "c\\d"]) == '{"a\\"b","c\\\\d"}'


def test_a_principal_must_be_given():
    with pytest.raises(TypeError):
        Options(principal="nobody")
    with pytest.raises(TypeError):
        Options()


def test_deadline_breaks_what_is_watched_and_nothing_else():
    broken = []
    deadline = Deadline(0.01, after_in_thread)
    deadline.start()
    with deadline.watch(lambda: broken.append(1)):
        while not deadline.expired:
            time.sleep(0.001)
    with pytest.raises(Exception, match="did not answer"):
        deadline.check()
    assert broken == [1]
    entries = []
    deadline = Deadline(0, lambda seconds, expire: entries.append(expire))
    deadline.start()
    with deadline.watch(lambda: broken.append(2)):
        pass
    entries[0]()
    assert deadline.expired and broken == [1]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.time, self.timers = 0.0, []
        monkeypatch.setattr("idempotency_postgres.heartbeat.now", lambda: self.time)

    def after(self, seconds, call):
        entry = [self.time + seconds, call]
        self.timers.append(entry)
        return type("Timer", (), {"cancel": lambda _: entry in self.timers and self.timers.remove(entry)})()

    def go(self, to):
        for entry in [e for e in self.timers if e[0] <= to]:
            if entry in self.timers:
                self.timers.remove(entry)
                self.time = max(self.time, entry[0])
                entry[1]()
        self.time = to


def beats(monkeypatch, answers):
    from idempotency_postgres.database import drive

    clock, lost = Clock(monkeypatch), []

    async def extend(limit):
        assert limit == 0.5
        clock.time += 0.2  # that the answer takes; what counts is when it was asked for
        answer = answers.pop(0)
        if answer:
            raise answer

    return clock, lost, ThreadHeartbeat(3.0, 0.0, clock.after, extend, lambda: lost.append(clock.time)), drive


def test_a_failed_beat_comes_again_at_a_tenth(monkeypatch):
    clock, lost, heart, drive = beats(monkeypatch, [OSError(), None])
    clock.go(1.0)
    assert drive(heart.beat()) == pytest.approx(0.3)
    clock.go(1.3)
    assert drive(heart.beat()) == pytest.approx(0.8)
    clock.go(4.2)
    assert not heart.lost.is_set()
    clock.go(4.4)  # 1.3, when it was sent, and a lease
    assert heart.lost.is_set() and lost == [pytest.approx(4.3)]


def test_the_server_says_that_it_is_lost(monkeypatch):
    error = psycopg.errors.DatabaseError()
    error.sqlstate = "ID409"
    clock, lost, heart, drive = beats(monkeypatch, [error])
    clock.go(1.0)
    assert drive(heart.beat()) is None
    assert lost == [1.2]
    with pytest.raises(Exception, match="lost"):
        heart.check()


def test_a_lease_that_has_been_stopped_is_not_lost(monkeypatch):
    clock, lost, heart, _ = beats(monkeypatch, [])
    heart.stop()
    clock.go(10)
    assert not lost


@pytest.mark.parametrize("resumed, pause", [(1.6, 0.4), (3.3, 0.0)])
def test_work_that_runs_again_beats_when_a_beat_is_due(monkeypatch, resumed, pause):
    clock, _, heart, drive = beats(monkeypatch, [None])
    clock.go(1.0)
    drive(heart.beat())
    heart.stop()
    clock.go(resumed)
    heart.resume()
    pauses, ended = [], threading.Event()
    monkeypatch.setattr(heart.stopped, "wait", lambda seconds: pauses.append(seconds) or True)
    heart.at_end = ended.set

    async def work():
        ended.wait()

    drive(heart.run(work))
    assert pauses == [pytest.approx(pause)]


def test_a_beat_of_the_run_before_is_the_last_of_its_thread(monkeypatch):
    clock, _, heart, drive = beats(monkeypatch, [])
    sent, answered, ended = threading.Event(), threading.Event(), threading.Event()

    async def extend(limit):
        sent.set()
        answered.wait()

    async def work():
        sent.wait()

    heart._extend, heart.at_end = extend, ended.set
    clock.go(1.0)
    drive(heart.run(work))
    heart.resume()
    answered.set()
    has_ended = ended.wait(30)
    heart.stop()
    assert has_ended


@pytest.mark.parametrize(
    "name, value",
    [
        ("missingkey", "pass"), ("missing_key", "refused"), ("wiat", 3), ("wait", "3"), ("ttl", -1), ("lease", 0), ("attempts", 0), ("attempts", True),
        ("keep", True), ("echo_key", "no"), ("methods", "POST"), ("methods", ["post"]), ("methods", []), ("exclude", "ts"), ("statuses", {"in_progres": 425}), ("statuses", {"mismatch": 200}),
        ("key_header", "My Key"), ("on_replay", "log"), ("handler_timeout", float("nan")), ("verdict", "keep"), ("scope", ""), ("principal", "tenant"),
    ],
)  # fmt: skip
def test_a_typo_does_not_switch_the_protection_off(name, value):
    database = type("Blocking", (), {"query": lambda *_: ()})()
    with pytest.raises(TypeError, match=name):
        Idempotency(database, **{name: value})
    with pytest.raises(TypeError, match=name):
        Idempotency(database, principal=id).transactional(**{name: value})


def test_options_that_are_right():
    import datetime

    database = type("Blocking", (), {"query": lambda *_: ()})()
    keys = Idempotency(database, principal=id, ttl=datetime.timedelta(hours=1), statuses={"in_progress": 425}, methods=["PUT"])
    keys.leased(wait=0, verdict=lambda answer: "keep", scope=None, handler_timeout=None, missing_key="derive")


def test_errors_of_strangers():
    class Gateway(Exception):
        sqlstate = "40001"

    assert sqlstate(Gateway()) is None
    assert not is_transient(Gateway("Connection closed"), from_handler=True)
    assert not is_transient(psycopg.errors.IdleInTransactionSessionTimeout("each run would be too slow"))
    assert is_transient(psycopg.errors.AdminShutdown("57P01"))


def form(*lines):
    return parts_of("multipart/form-data; boundary=b", b"\r\n".join(lines))


def test_parts_of_a_form():
    head = (b'Content-Disposition: form-data; name="a\\"b"; filename=x.y', b"Content-Type: Text/Plain; charset=x", b"")
    assert form(b"--b", *head, b"one", b"two", b"--b--", b"") == [(b'a"b', b"x.y", "text/plain", b"one\r\ntwo")]
    for lines in ((b"",), (b"--b--",), (b"--b", b"x"), (b"--b", b"", b"x", b"--b--"), (b"--b", b"Content-Disposition: form-data", b"", b"x")):
        assert form(*lines) is None
    assert parts_of("multipart/form-data", b"--b--") is None


def test_the_kind_of_a_claim():
    from idempotency_postgres import AsyncLeased, Leased, Transactional, claim
    from idempotency_postgres.route import current

    with pytest.raises(RuntimeError, match="no claim here"):
        claim(Transactional)
    own = Transactional("client", "key", "scope", "principal")
    token = current.set(own)
    try:
        assert claim() is claim(Transactional) is claim(Transactional[str]) is own
        for other in (Leased, AsyncLeased):
            with pytest.raises(TypeError, match="is a Transactional, not a"):
                claim(other)
    finally:
        current.reset(token)


def test_work_does_not_begin_after_the_deadline():
    """Its connection was closed while the answer arrived."""
    entries = []
    deadline = Deadline(0, lambda seconds, expire: entries.append(expire))
    deadline.start()
    entries[0]()
    with pytest.raises(DatabaseLate):
        deadline.pause()
