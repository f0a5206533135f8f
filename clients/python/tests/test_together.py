"""Statements of psycopg's adapter in one message, and how they are prepared."""

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from idempotency_postgres import Answer, Request, Settings, leased, transactionally
from idempotency_postgres.psycopg import database
from idempotency_postgres.together import Preparing, together

OURS = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%idem_%'"


@pytest.fixture
def pool(dsn):
    with ConnectionPool(f"dbname={dsn}", min_size=1, max_size=1) as pool:
        yield pool


def execute(pool, key, work=lambda claim: Answer(201)):
    return transactionally(database(pool), Request(key, "together", "p", json="{}"), work)


def prepared(pool):
    with pool.connection() as connection:
        return connection.execute(OURS, prepare=False).fetchone()[0]


def test_statements_are_prepared_as_psycopg_prepares(pool, key):
    for number in range(5):
        execute(pool, f"{key}-{number}")
    assert prepared(pool) == 0
    execute(pool, f"{key}-5")
    assert prepared(pool) == 2  # idem_begin and idem_complete


def test_without_a_threshold_none_is_prepared(dsn, key):
    with ConnectionPool(f"dbname={dsn}", min_size=1, max_size=1, kwargs={"prepare_threshold": None}) as pool:
        for number in range(8):
            execute(pool, f"{key}-{number}")
        assert prepared(pool) == 0


def test_a_handler_that_rolls_back_to_a_savepoint_runs_once(pool, key, sql):
    """psycopg deallocates all statements after it."""
    runs = []

    def work(claim):
        runs.append(claim.key)
        claim.client.execute("SAVEPOINT s")
        claim.client.execute("ROLLBACK TO s")
        claim.client.execute("INSERT INTO effect VALUES (%s)", (claim.key,))
        return Answer(201)

    for number in range(16):
        assert execute(pool, f"{key}-{number}", work).outcome == "executed"
    assert len(runs) == 16
    assert sql("SELECT count(*) FROM effect WHERE note LIKE %s", f"{key}-%")[0][0] == 16


def test_a_handler_that_deallocates_them_runs_again(pool, key, sql):
    """psycopg overlooks some of these."""
    runs = []

    def work(claim):
        runs.append(claim.key)
        claim.client.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", prepare=False)
        claim.client.execute("INSERT INTO effect VALUES (%s)", (claim.key,), prepare=False)
        return Answer(201)

    db = database(pool)
    for number in range(8):
        transactionally(db, Request(f"{key}-{number}", "together", "p"), lambda claim: Answer(201))
    for number in range(8, 11):
        settings = Settings(attempts=1)
        assert transactionally(db, Request(f"{key}-{number}", "together", "p"), work, settings).outcome == "executed"
    assert len(runs) == 4
    assert sql("SELECT count(*) FROM effect WHERE note LIKE %s", f"{key}-%")[0][0] == 3


async def test_a_session_that_has_lost_them(dsn, key):
    async with AsyncConnectionPool(f"dbname={dsn}", min_size=1, max_size=1) as pool:
        db = database(pool)

        async def work(claim):
            return Answer(201)

        async def some(word):
            for number in range(7):
                request = Request(f"{key}-{word}-{number}", "together", "p")
                assert (await transactionally(db, request, work)).outcome == "executed"
                request = Request(f"{key}-{word}-leased-{number}", "together", "p")
                assert (await leased(db, request, work)).outcome == "executed"

        await some("before")
        async with pool.connection() as connection:
            await connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", prepare=False)
        await some("after")


def test_a_preparation_that_fails_is_tried_again(pool):
    with pool.connection() as connection:
        connection.prepare_threshold = 0
        for _ in range(2):
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.wait(together(connection, Preparing(), ("SELECT * FROM later_made WHERE a = $1::text", ["a"])))
        connection.execute("CREATE TEMPORARY TABLE later_made AS SELECT 'a' AS a")
        for _ in range(2):
            assert connection.wait(together(connection, Preparing(), ("SELECT * FROM later_made WHERE a = $1::text", ["a"]))).rows == [{"a": "a"}]


def test_values_of_other_settings(dsn, key):
    """Text in the encoding of the session, and bytes whatever their format is."""
    settings = "-c bytea_output=escape -c client_encoding=latin1"
    with ConnectionPool(f"dbname={dsn}", min_size=1, max_size=1, kwargs={"options": settings}) as pool:
        answer = Answer(201, (("X-One", "ä"),), bytes(range(256)))
        assert execute(pool, key, lambda claim: answer).outcome == "executed"
        again = execute(pool, key).answer
        assert (dict(again.headers), again.body) == ({"X-One": "ä"}, bytes(range(256)))


def test_a_pipeline_that_the_handler_leaves_open(pool, key, sql):
    left = []

    def work(claim):
        claim.client.execute("INSERT INTO effect VALUES (%s)", (key,))
        left.append(claim.client.pipeline())
        left[0].__enter__()
        return Answer(201)

    with pytest.raises(RuntimeError, match="pipeline"):
        execute(pool, key, work)
    assert sql("SELECT count(*) FROM effect WHERE note = %s", key)[0][0] == 0
    assert execute(pool, key).outcome == "executed"


def test_the_characteristics_of_the_connection_hold(dsn, key):
    def configure(connection):
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    with ConnectionPool(f"dbname={dsn}", min_size=1, max_size=1, configure=configure) as pool:
        seen = []
        for number in range(7):
            execute(pool, f"{key}-{number}", lambda claim: seen.append(claim.client.execute("SHOW transaction_isolation").fetchone()[0]) or Answer(201))
        assert set(seen) == {"serializable"}


async def test_leased_statements_are_prepared_too(dsn, key):
    async with AsyncConnectionPool(f"dbname={dsn}", min_size=1, max_size=1) as pool:
        for number in range(8):

            async def work(claim):
                await claim.step("one", lambda: number)  # noqa: B023
                return Answer(201)

            result = await leased(database(pool), Request(f"{key}-{number}", "together", "p", json="{}"), work)
            assert result.outcome == "executed"
        async with pool.connection() as connection:
            cursor = await connection.execute(OURS, prepare=False)
            assert await cursor.fetchone() == (3,)
