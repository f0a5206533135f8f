"""What the conformance suite does not see of workers: each driver, options, steps, a lost LISTEN, an abort."""

import asyncio
import datetime
import inspect
import threading
from contextlib import asynccontextmanager

import psycopg_pool
import pytest

from idempotency_postgres import Answer, Rejection, worker
from idempotency_postgres.psycopg import database

from .test_drivers import KINDS, opened

pytestmark = pytest.mark.usefixtures("policy")


@pytest.fixture(scope="module")
def policy(dsn):
    import psycopg

    with psycopg.connect(dbname=dsn, autocommit=True) as connection:
        connection.execute("SELECT idem_policy_set('worker*', store_request => true, retry_base => '0')")


@pytest.fixture
def scope(key):
    return f"worker-{key}"


@pytest.fixture
def channel(scope):
    """Of this test alone: an earlier test's session may still be there for a moment, and has its LISTEN."""
    return f'a "channel" of {scope}'


@pytest.fixture
def queue(sql, scope, channel):
    def put(key, request='{"n": 1}'):
        sql(
            "WITH begun AS MATERIALIZED (SELECT token FROM idem_begin(%s, %s::jsonb, scope => %s)), failed AS MATERIALIZED ("
            "  SELECT idem_fail(%s, 'queued', retryable => true, scope => %s, retry_after => '0', token => token) FROM begun)"
            " SELECT pg_notify(%s, '') FROM failed", key, request, scope, key, scope, channel,
        )  # fmt: skip

    return put


@pytest.fixture
def records(sql, scope):
    return lambda: sql("SELECT status, attempt, error FROM idempotency.records WHERE scope = %s ORDER BY key", scope)


@asynccontextmanager
async def at_work(own):
    """Until its handler stops it. A blocking worker runs in a thread, which would outlive a test that has failed."""
    running = asyncio.ensure_future(own.run() if inspect.iscoroutinefunction(own.run) else asyncio.to_thread(own.run))
    try:
        yield running
        await asyncio.wait_for(asyncio.shield(running), 120)
    except BaseException:
        own.abort()
        await asyncio.wait({running}, timeout=60)
        raise


async def finished(own):
    async with at_work(own):
        pass


async def until(holds):
    for _ in range(12000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize("kind", KINDS)
async def test_each_driver(request, kind, dsn, sql, scope, queue, records):
    """In a transaction: the work of the second record is rolled back once."""
    if kind == "django":
        request.getfixturevalue("django_settings")
    seen = []
    async with opened(kind, dsn) as (db, execute):
        def handle(work):
            done = execute(work.client, f"INSERT INTO effect (note) VALUES ('{work.scope} {work.key} {work.attempt}')")
            seen.append((work.key, work.request, work.attempt, work.kind, work.recovery_point, work.state))

            def end():
                if work.key == "b" and work.attempt == 2:
                    raise RuntimeError("not yet")
                if work.key == "c":
                    own.stop()

            if not inspect.isawaitable(done):
                return end()

            async def ended():
                await done
                end()

            return ended()

        errors = []
        queue("a")
        own = worker(db, scope, handle, size=2, poll=0.05, on_error=errors.append)
        async with at_work(own):
            for number, key in enumerate(("b", "c"), 1):
                await until(lambda: [status for status, *_ in records()].count("completed") == number)
                queue(key)
    assert [str(error) for error in errors] == ["not yet"]
    assert sorted(seen) == [(key, {"n": 1}, attempt, "transactional", None, {}) for key, attempt in [("a", 2), ("b", 2), ("b", 3), ("c", 2)]]
    assert [record[:2] for record in records()] == [("completed", 2), ("completed", 3), ("completed", 2)]
    assert sql("SELECT count(*) FROM effect WHERE note LIKE %s", f"{scope} %") == [(3,)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "threads" not in kind])
async def test_listen(request, kind, dsn, sql, scope, channel, queue, records):
    """Each driver: when its connection is lost, it listens again, and has missed nothing. The pause is too long to help."""
    if kind == "django":
        request.getfixturevalue("django_settings")
    async with opened(kind, dsn) as (db, _):
        done = []
        errors = []

        def handle(work):
            done.append(work.key)
            if work.key == "b":
                own.stop()
            return answer()

        def answer():
            return nothing() if inspect.iscoroutinefunction(own.run) else None

        async def nothing():
            return None

        own = worker(db, scope, handle, poll=600, channel=channel, on_error=errors.append)
        async with at_work(own):
            queue("a")
            await until(lambda: done)
            listeners = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' || %s || '%%'"
            assert not errors
            (pid,) = sql(listeners, scope)[0]
            sql("SELECT pg_terminate_backend(%s)", pid)
            await until(lambda: (pid,) not in sql(listeners, scope))
            queue("b")
    assert errors
    assert [record[0] for record in records()] == ["completed"] * 2


@pytest.fixture
def pool(dsn):
    with psycopg_pool.ConnectionPool(f"dbname={dsn}", open=True, min_size=1) as pool:
        yield pool


async def test_a_rejection(pool, sql, scope, queue, records):
    """Its work is rolled back; its answer is stored."""

    def handle(work):
        work.client.execute("INSERT INTO effect (note) VALUES (%s)", (scope,))
        own.stop()
        raise Rejection(Answer(422, body=b"no"))

    queue("a")
    own = worker(database(pool), scope, handle, poll=0.05)
    await finished(own)
    assert sql("SELECT status_code, convert_from(body, 'UTF8') FROM idem_begin('a', '{\"n\": 1}', scope => %s)", scope) == [(422, "no")]
    assert sql("SELECT count(*) FROM effect WHERE note = %s", scope) == [(0,)]


async def test_a_conflict_after_the_lease(pool, scope, queue):
    """The COMMIT takes longer than the lease: the work does not run again."""
    runs = []

    def handle(work):
        runs.append(work.attempt)
        own.stop()
        work.client.execute("""
            CREATE TEMP TABLE late ();
            CREATE FUNCTION pg_temp.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                PERFORM pg_sleep(0.7);
                RAISE EXCEPTION SQLSTATE '40001';
            END$$;
            CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.late();
            INSERT INTO late DEFAULT VALUES
        """)

    queue("a")
    own = worker(database(pool), scope, handle, lease=0.6, poll=0.05)
    await finished(own)
    assert runs == [2]


async def test_what_a_handler_may_return(pool, scope, queue, records):
    def handle(work):
        own.stop()
        return {"status": 200}

    errors = []
    queue("a")
    own = worker(database(pool), scope, handle, poll=0.05, on_error=errors.append)
    await finished(own)
    assert isinstance(errors[0], TypeError) and "an Answer or nothing" in str(errors[0])
    assert records() == [("retryable", 2, str(errors[0]))]


async def test_steps(pool, scope, queue, records):
    """They are done once, in both attempts of a leased claim."""
    done, seen = [], []

    def handle(work):
        seen.append((work.recovery_point, dict(work.state), work.error))
        assert work.client is None
        assert work.step("charge", lambda: done.append(1) or {"id": "ch"}) == {"id": "ch"}
        if work.attempt == 2:
            raise RuntimeError("the other service is away")
        own.stop()

    queue("a")
    own = worker(database(pool), scope, handle, poll=0.05, mode="leased", on_error=lambda error: None)
    await finished(own)
    assert done == [1]
    assert [(point, state) for point, state, _ in seen] == [(None, {}), ("charge", {"charge": {"id": "ch"}})]
    assert seen[1][2] == "the other service is away"
    assert records() == [("completed", 3, None)]


async def test_steps_are_for_leased_work(pool, scope, queue, records):
    def handle(work):
        own.stop()
        work.step("charge", dict)

    queue("a")
    own = worker(database(pool), scope, handle, poll=0.05, on_error=lambda error: None)
    await finished(own)
    assert "mode `leased`" in records()[0][2]


@pytest.mark.parametrize("mode", ["transactional", "leased"])
async def test_an_abort(pool, scope, queue, records, mode):
    """The handler is told, and its claim is not left behind."""
    runs = threading.Event()

    def handle(work):
        runs.set()
        work.lost.wait()
        work.check()

    queue("a")
    own = worker(database(pool), scope, handle, poll=0.05, mode=mode, on_error=lambda error: None)
    async with at_work(own):
        assert await asyncio.to_thread(runs.wait, 60)
        own.abort()
        own.abort()
    assert records()[0][:2] == ("retryable", 2)


@pytest.mark.parametrize("mode", ["transactional", "leased"])
async def test_a_cancellation(dsn, scope, queue, records, mode):
    """That of `run` is an abort."""
    runs = asyncio.Event()

    async def handle(work):
        runs.set()
        await asyncio.Event().wait()

    queue("a")
    async with opened("psycopg-async", dsn) as (db, _):
        running = asyncio.ensure_future(worker(db, scope, handle, poll=0.05, mode=mode, on_error=lambda error: None).run())
        await asyncio.wait_for(runs.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert records()[0][:2] == ("retryable", 2)


async def test_a_mistake(pool, dsn):
    """Of the first call: no such scope can be."""
    with pytest.raises(Exception, match="scope"):
        await finished(worker(database(pool), " ", lambda work: None))


async def test_options(pool):
    for bad in (
        {"size": 0}, {"size": 1.5}, {"size": True}, {"lease": 0}, {"lease": "1"}, {"poll": -1}, {"poll": float("inf")}, {"channel": ""},
        {"mode": "both"}, {"holder": ""}, {"scope": 5}, {"scope": None},
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"`{next(iter(bad))}` has to be"):
            worker(database(pool), **{"scope": "s", "handler": lambda work: None, **bad})
    worker(database(pool), "s", lambda work: None, lease=datetime.timedelta(seconds=3), poll=datetime.timedelta(seconds=1))
    async with opened("psycopg-threads", pool.conninfo.split("=")[1]) as (db, _):
        with pytest.raises(TypeError, match="channel"):
            worker(db, "s", lambda work: None, channel="c")
