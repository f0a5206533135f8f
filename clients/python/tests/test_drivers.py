"""The flows, with every driver. Blocking ones are called through the same coroutines' faces."""

import asyncio
import json
import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import asyncpg as asyncpg_driver
import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from idempotency_postgres import (
    Answer, DatabaseAway, HandlerLate, NothingHappened, Refused, Rejection, Request, Settings, exactly_once, idempotent, leased, once, transactionally,
)  # fmt: skip
from idempotency_postgres.database import InThreads, is_async

from .conftest import HOST, PORT, USER


sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "conformance"))
from suite.proxy import Proxy  # noqa: E402


def url(driver, name, host, port):
    return sa.URL.create(f"postgresql+{driver}", USER, database=name, query={"host": host, "port": port} if driver == "psycopg" else {},
                         **({} if driver == "psycopg" else {"host": host, "port": int(port)}))


async def json_codec(connection):
    """A user's own, which would encode text once more."""
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


@asynccontextmanager
async def opened(kind, name, host=HOST, port=PORT):
    """A database of ours, and how to run SQL in its transactions: blocking or not."""
    from idempotency_postgres import asyncpg, psycopg as ours, sqlalchemy

    if kind.startswith("psycopg"):
        if kind == "psycopg-async":
            async with psycopg_pool.AsyncConnectionPool(f"dbname={name} host={host} port={port}", open=False, min_size=1) as pool:
                yield ours.database(pool), lambda tx, text: tx.execute(text)
            return
        with psycopg_pool.ConnectionPool(f"dbname={name} host={host} port={port}", open=True, min_size=1) as pool:
            db = ours.database(pool)
            if kind == "psycopg-threads":
                yield InThreads(db), lambda tx, text: asyncio.to_thread(tx.execute, text)
            else:
                yield db, lambda tx, text: tx.execute(text)
    elif kind.startswith("asyncpg"):
        init = json_codec if kind == "asyncpg-codec" else None
        async with asyncpg_driver.create_pool(user=USER, host=host, port=port, database=name, min_size=1, init=init) as pool:
            yield asyncpg.database(pool), lambda tx, text: tx.execute(text)
    elif kind.startswith("sqlalchemy-async"):
        engine = create_async_engine(url(kind.split("-")[2], name, host, port))
        source = async_sessionmaker(engine) if kind.endswith("session") else engine
        yield sqlalchemy.database(source), lambda tx, text: tx.execute(sa.text(text))
        await engine.dispose()
    elif kind.startswith("sqlalchemy"):
        engine = sa.create_engine(url("psycopg", name, host, port))
        source = sessionmaker(engine) if kind.endswith("session") else engine
        yield sqlalchemy.database(source), lambda tx, text: tx.execute(sa.text(text))
        engine.dispose()
    else:
        from idempotency_postgres.django import database

        def execute(tx, text):
            with tx.cursor() as cursor:
                cursor.execute(text)

        yield database(), execute


KINDS = [
    "psycopg", "psycopg-async", "psycopg-threads", "asyncpg", "asyncpg-codec", "sqlalchemy", "sqlalchemy-session",
    "sqlalchemy-async-psycopg", "sqlalchemy-async-asyncpg", "sqlalchemy-async-psycopg-session",
    "sqlalchemy-async-asyncpg-session", "django",
]  # fmt: skip


@pytest.fixture(params=KINDS)
async def tried(request, dsn):
    if request.param == "django":
        request.getfixturevalue("django_settings")
    async with opened(request.param, dsn) as (db, execute):
        yield Tried(db, execute)


class Tried:
    """Work of either colour from one text."""

    def __init__(self, db, execute):
        self.db, self.execute, self.is_async = db, execute, is_async(db)

    def work(self, answer, *statements):
        """A handler: these statements, then this answer or exception."""

        def end():
            if isinstance(answer, BaseException):
                raise answer
            return answer

        if self.is_async:

            async def handler(claim):
                for statement in statements:
                    await self.execute(claim.client, statement)
                return end()
        else:

            def handler(claim):
                for statement in statements:
                    self.execute(claim.client, statement)
                return end()

        return handler

    async def call(self, value):
        return await value if self.is_async else value


def effect(key):
    return f"INSERT INTO effect (note) VALUES ('{key}')"


BYTES = bytes(range(256))
ANSWER = Answer(201, [("X-A", "1"), ("X-A", "ü")], BYTES)


def request(key, content='{"b": 1, "path": "C:\\\\dir"}', **named):
    return Request(key, "test", "somebody", json=content, method="POST", target="/test", exclude=["ts"], **named)


async def test_executed_and_replayed(tried, key, sql):
    first = await tried.call(transactionally(tried.db, request(key, ttl=60, wait=0.5), tried.work(ANSWER, effect(key))))
    assert (first.outcome, first.answer) == ("executed", ANSWER)
    again = await tried.call(transactionally(tried.db, request(key, '{"path":"C:\\\\dir","b":1.0,"ts":1}'), tried.work(ANSWER, effect(key))))
    assert again.outcome == "replay"
    assert (again.answer.status, sorted(again.answer.headers), again.answer.body) == (201, [("X-A", "1"), ("X-A", "ü")], BYTES)
    other = await tried.call(transactionally(tried.db, request(key, "{}"), tried.work(ANSWER, effect(key))))
    assert (other.outcome, other.answer) == ("mismatch", None)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


async def test_rolled_back(tried, key, sql):
    with pytest.raises(ZeroDivisionError):
        await tried.call(transactionally(tried.db, request(key), tried.work(ZeroDivisionError(), effect(key))))
    result = await tried.call(transactionally(tried.db, request(key), tried.work(Answer(503), effect(key))))
    assert (result.outcome, result.answer.status) == ("not_kept", 503)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(0,)]
    assert sql("SELECT count(*) FROM idempotency.records WHERE key = %s", key) == [(0,)]


async def test_a_rejection_rolls_back_and_its_answer_is_replayed(tried, key, sql):
    no = Answer(409, [("X-Why", "empty")], b"no")
    result = await tried.call(transactionally(tried.db, request(key), tried.work(Rejection(no), effect(key))))
    assert (result.outcome, result.answer.status, result.answer.body) == ("executed", 409, b"no")
    again = await tried.call(transactionally(tried.db, request(key), tried.work(ANSWER, effect(key))))
    assert (again.outcome, again.answer) == ("replay", no)
    late = await tried.call(transactionally(tried.db, request(key + "-503"), tried.work(Rejection(Answer(503)), effect(key))))
    assert late.outcome == "not_kept"
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(0,)]


async def test_a_verdict_that_is_none(tried, key, sql):
    settings = Settings(verdict=lambda answer: "kepp")
    with pytest.raises(TypeError, match="`verdict` has to return"):
        await tried.call(transactionally(tried.db, request(key), tried.work(ANSWER, effect(key)), settings))
    with pytest.raises(TypeError, match="`verdict` has to return"):
        await tried.call(leased(tried.db, request(key + "-leased"), lambda _: ANSWER, settings))
    assert sql("SELECT status FROM idempotency.records WHERE key LIKE %s", key + "%") == [("retryable",)]
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(0,)]


async def test_the_transaction_cannot_be_used_when_it_is_over(tried, key, sql):
    if "session" in type(tried.db).__name__.lower() or not type(tried.db).__module__.endswith((".psycopg", ".asyncpg")):
        pytest.skip("SQLAlchemy and Django own their connections")
    kept = []
    work = tried.work(ANSWER)

    def keep(claim):
        kept.append(claim.client)
        return work(claim)

    await tried.call(transactionally(tried.db, request(key), keep))
    with pytest.raises(Exception, match="ended|released"):
        await tried.call(tried.execute(kept[0], effect(key)))
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(0,)]


async def test_work_that_does_not_end_is_given_up(tried, key, sql):
    done = threading.Event()

    def never(claim):
        return asyncio.sleep(3600) if tried.is_async else done.wait(1)

    with pytest.raises(HandlerLate):
        await tried.call(transactionally(tried.db, request(key), never, Settings(handler_timeout=0.2)))
    # Of a thread the connection is closed, which the server may notice later.
    result = await tried.call(transactionally(tried.db, request(key, wait=60), tried.work(ANSWER, effect(key))))
    assert result.outcome == "executed"


@pytest.mark.parametrize(
    "kind, execution, replay",
    [
        ("psycopg", 3, 1), ("psycopg-async", 3, 1), ("psycopg-threads", 3, 1), ("asyncpg", 5, 2), ("sqlalchemy", 5, 3), ("sqlalchemy-session", 5, 3),
        ("sqlalchemy-async-psycopg", 5, 3), ("sqlalchemy-async-asyncpg", 5, 3),
    ],
)  # fmt: skip
async def test_waits_for_the_database(kind, execution, replay, dsn, key):
    """Before the answer, of an execution with one statement of the handler, and of a replay. README.md says why."""
    proxy = Proxy()
    async with opened(kind, dsn, "127.0.0.1", str(proxy.port)) as (db, execute):
        tried = Tried(db, execute)

        async def count(name):
            while not proxy.is_idle():  # after the ends of transactions that no answer waits for
                await asyncio.sleep(0.001)
            proxy.forget_waits()
            await tried.call(transactionally(db, request(f"{key}-{name}"), tried.work(ANSWER, effect(key))))
            waits = proxy.waits("idem_")
            waits = ["".join(wait) for wait in waits]
            # These come after the answer.
            return len([wait for wait in waits if "UNLISTEN" not in wait and not (kind.startswith("psycopg") and wait in ("COMMIT", "ROLLBACK"))])

        for name in range(8):  # statements are prepared
            await count(name)
        assert (await count("a"), await count("a")) == (execution, replay)
    proxy.refuse()


async def test_conflicts_are_tried_again_and_not_for_ever(tried, key, sql):
    conflict = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"
    runs = []

    def count_and(work):
        def handler(claim):
            runs.append(claim.attempt)
            return work(claim)

        return handler

    with pytest.raises(DatabaseAway):
        await tried.call(transactionally(tried.db, request(key), count_and(tried.work(ANSWER, effect(key), conflict)), Settings(attempts=3)))
    assert len(runs) == 3
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(0,)]


async def test_a_killed_backend_is_survived(tried, key, sql):
    await tried.call(once(tried.db, key + "-warm", lambda tx: tried.execute(tx, "SELECT 1")))
    runs = []
    kill = tried.work(ANSWER, effect(key), "SELECT pg_terminate_backend(pg_backend_pid())")
    well = tried.work(ANSWER, effect(key))

    def handler(claim):
        runs.append(1)
        return (kill if len(runs) == 1 else well)(claim)

    # The server frees the key when it has ended the session, which the client may notice before.
    result = await tried.call(transactionally(tried.db, request(key, wait=60), handler))
    assert (result.outcome, len(runs)) == ("executed", 2)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


async def test_a_transaction_of_ours_that_has_not_ended_is_waited_for(tried, key, sql):
    """The client has lost the connection, and the server has not noticed: another connection stands for that."""
    holder = psycopg.connect(dbname=sql("SELECT current_database()")[0][0])
    runs = []
    lost = tried.work(ANSWER, effect(key), "SELECT pg_terminate_backend(pg_backend_pid())")

    def handler(claim):
        runs.append(1)
        return lost(claim) if len(runs) == 1 else tried.work(ANSWER, effect(key))(claim)

    class Database:
        """Lets `holder` have the key after the first failure, and gives it back with the second refusal."""

        transaction, statement = tried.db.transaction, tried.db.statement
        asked = 0

        def before(self):
            self.asked += 1
            if self.asked == 2:
                holder.execute("SELECT idem_begin(%s, scope => 'test', principal => 'somebody', wait => '60 s')", (key,))
            if self.asked == 4:
                holder.rollback()

    class Blocking(Database):
        def query(self, tx, text, values):
            if "idem_begin" in text:
                self.before()
            return tried.db.query(tx, text, values)

    class Async(Database):
        async def query(self, tx, text, values):
            if "idem_begin" in text:
                self.before()
            return await tried.db.query(tx, text, values)

    with holder:
        result = await tried.call(transactionally((Async if tried.is_async else Blocking)(), request(key), handler))
    assert (result.outcome, len(runs)) == ("executed", 2)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


async def test_a_late_database_is_away(tried, key, sql):
    """Another session holds a lock that the claim needs."""
    with psycopg.connect(dbname=sql("SELECT current_database()")[0][0]) as holder:
        holder.execute("LOCK TABLE idempotency.record")
        with pytest.raises(DatabaseAway):
            await tried.call(transactionally(tried.db, request(key), tried.work(ANSWER), Settings(database_timeout=0.3)))
    # The claim whose client gave up gets its lock now, and is in progress until the server notices.
    busy = """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'"""
    deadline = time.monotonic() + 60
    while sql(busy) != [(0,)]:
        assert time.monotonic() < deadline, "the server still serves whoever has gone"
        await asyncio.sleep(0.01)
    result = await tried.call(transactionally(tried.db, request(key), tried.work(ANSWER)))
    assert result.outcome == "executed"


async def test_once(tried, key, sql):
    apply = lambda tx: tried.execute(tx, effect(key))  # noqa: E731
    assert await tried.call(once(tried.db, key, apply, scope="events")) is True
    assert await tried.call(once(tried.db, key, apply, scope="events")) is False
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(1,)]


async def test_once_with_a_hidden_error(tried, key, sql):
    """PostgreSQL turns its COMMIT into a ROLLBACK: nothing is done, and the client reports it."""
    broken = "SELECT 1/0"

    async def hide(tx):
        try:
            await tried.execute(tx, broken)
        except Exception:
            pass

    def hide_blocking(tx):
        try:
            tried.execute(tx, broken)
        except Exception:
            pass

    with pytest.raises(Exception):
        await tried.call(once(tried.db, key, hide if tried.is_async else hide_blocking))
    apply = lambda tx: tried.execute(tx, effect(key))  # noqa: E731
    assert await tried.call(once(tried.db, key, apply)) is True


def leased_work(tried, steps, answer):
    if tried.is_async:

        async def work(claim):
            for name, step in steps.items():

                async def run(step=step):
                    return step()

                await claim.step(name, run)
            if isinstance(answer, BaseException):
                raise answer
            return answer
    else:

        def work(claim):
            for name, step in steps.items():
                claim.step(name, step)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    return work


async def test_leased_and_its_steps(tried, key, sql):
    runs = []

    def charge():
        runs.append("charge")
        return {"charge": "ch_1"}

    with pytest.raises(ZeroDivisionError):
        await tried.call(leased(tried.db, request(key), leased_work(tried, {"charge": charge}, ZeroDivisionError("why"))))
    assert sql("SELECT status, recovery_point, error FROM idempotency.records WHERE key = %s", key) == [("retryable", "charge", "why")]
    sql("SELECT idem_resolve(%s, 'release', scope => 'test', principal => 'somebody', even_if_running => true)", key)
    result = await tried.call(leased(tried.db, request(key), leased_work(tried, {"charge": charge, "mail": lambda: None}, ANSWER)))
    assert (result.outcome, result.record.attempt, runs) == ("executed", 2, ["charge"])
    again = await tried.call(leased(tried.db, request(key), leased_work(tried, {"charge": charge}, ANSWER)))
    assert (again.outcome, again.answer.body) == ("replay", BYTES)


async def end(tried, key, *ends, scope="test"):
    """A leased claim whose work calls `unknown` with each tuple, and raises or answers what comes last."""
    *calls, last = ends
    if tried.is_async:

        async def work(claim):
            for call in calls:
                await claim.unknown(*call)
            with pytest.raises(RuntimeError if calls else ZeroDivisionError):
                await claim.step("late", lambda: 1 / 0)
            if isinstance(last, BaseException):
                raise last
            return last
    else:

        def work(claim):
            for call in calls:
                claim.unknown(*call)
            with pytest.raises(RuntimeError if calls else ZeroDivisionError):
                claim.step("late", lambda: 1 / 0)
            if isinstance(last, BaseException):
                raise last
            return last

    return await tried.call(leased(tried.db, Request(key, scope, "somebody", json="{}"), work))


TOLD = "SELECT status, error, reference FROM idempotency.records WHERE key = %s"


async def test_unknown(tried, key, sql):
    result = await end(tried, key, ("time\0out \ud800", 'ch_"1"\\'), ("a second call", None), ANSWER)
    assert (result.outcome, result.answer) == ("not_kept", ANSWER)
    assert sql(TOLD, key) == [("unknown", "timeout ?", 'ch_"1"\\')]
    again = await end(tried, key, ANSWER)
    assert (again.outcome, again.record.retry_after) == ("unknown", 60)


async def test_what_fails_after_unknown(tried, key, sql):
    with pytest.raises(NothingHappened):
        await end(tried, key, (), NothingHappened("too late to say"))
    assert sql(TOLD, key) == [("unknown", None, None)]


@pytest.mark.parametrize("last, status", [
    (ValueError("timeout"), "unknown"), (Answer(502), "unknown"), (NothingHappened("no connection"), "retryable"),
    (Answer(402), "completed"),
])  # fmt: skip
async def test_a_failure_is_uncertain(tried, key, sql, last, status):
    sql("SELECT idem_policy_set('uncertain', on_lease_expiry => 'unknown')")
    try:
        await end(tried, key, last, scope="uncertain")
    except (ValueError, NothingHappened) as error:
        assert error is last
    assert sql(TOLD, key)[0][0] == status


async def test_a_derived_key(tried, sql, key):
    sql("SELECT idem_policy_set('derived', retention => '1 day')")

    async def run(**named):
        asked = Request(**{"key": None, "scope": "derived", "principal": key, "json": "{}", "derive": 60, **named})
        return await tried.call(transactionally(tried.db, asked, tried.work(ANSWER)))

    first = await run(json='{"a": 1, "b": 2}')
    again = await run(json='{"b": 2.0, "a": 1}')
    assert (first.outcome, again.outcome, again.record.key) == ("executed", "replay", first.record.key)
    digest = {"json": None, "fingerprint": b"\0\xff"}
    assert [(await run(**one)).outcome for one in ({}, digest, digest)] == ["executed", "executed", "replay"]
    with pytest.raises(TypeError, match="`key` or `derive`"):
        await run(derive=None)


async def test_steps_that_are_done_at_once(tried, key, sql):
    names = ["a", "b", "c", "d"]

    def work(result, error=None):
        def end(results):
            if error:
                raise error
            assert list(results) == ["first"] * len(names)
            return ANSWER

        if tried.is_async:

            async def handler(claim):
                async def step():
                    return result

                return end(await asyncio.gather(*(claim.step(name, step) for name in names)))
        else:

            def handler(claim):
                meet = threading.Barrier(len(names))

                def step():
                    if error:
                        meet.wait(30)
                    return result

                with ThreadPoolExecutor(len(names)) as threads:
                    return end(list(threads.map(lambda name: claim.step(name, step), names)))

        return handler

    with pytest.raises(ZeroDivisionError):
        await tried.call(leased(tried.db, request(key), work("first", ZeroDivisionError("after the steps"))))
    sql("SELECT idem_resolve(%s, 'release', scope => 'test', principal => 'somebody', even_if_running => true)", key)
    result = await tried.call(leased(tried.db, request(key), work("second")))
    assert (result.outcome, result.record.attempt) == ("executed", 2)


async def test_decorators(tried, key, sql):
    if tried.is_async:

        @idempotent(tried.db, key=lambda amount, key: key, scope="function")
        async def pay(claim, amount, key):
            await tried.execute(claim.client, effect(key))
            return {"paid": amount}

        @exactly_once(tried.db, key=lambda message: message, scope="handler")
        async def handle(tx, message):
            await tried.execute(tx, effect(message))
    else:

        @idempotent(tried.db, key=lambda amount, key: key, scope="function")
        def pay(claim, amount, key):
            tried.execute(claim.client, effect(key))
            return {"paid": amount}

        @exactly_once(tried.db, key=lambda message: message, scope="handler")
        def handle(tx, message):
            tried.execute(tx, effect(message))

    assert [await tried.call(pay(5, key)) for _ in range(2)] == [{"paid": 5}] * 2
    with pytest.raises(Refused) as refused:
        await tried.call(pay(6, key))
    assert refused.value.outcome == "mismatch"
    assert [await tried.call(handle(key)) for _ in range(2)] == [True, False]
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key) == [(2,)]


async def test_the_work_is_told_to_stop(tried, key, sql):
    """An operator resolves the claim: the next beat reports it."""
    told = []
    resolve = "SELECT idem_resolve(%s, 'complete', scope => 'test', principal => 'somebody', status_code => 200)"
    if tried.is_async:

        async def work(claim):
            sql(resolve, key)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append(claim.lost.is_set())
                raise
    else:

        def work(claim):
            sql(resolve, key)
            told.append(claim.lost.wait(60))
            claim.check()

    result = await tried.call(leased(tried.db, request(key), work, Settings(lease=0.6)))
    assert (result.outcome, result.record, told) == ("in_progress", None, [True])
