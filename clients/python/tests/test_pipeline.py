"""What docs/recipes.md says of pipelining, without the package: BEGIN goes with idem_begin, COMMIT with idem_complete."""

import psycopg
import pytest

BEGIN = "SELECT outcome, status_code, body FROM idem_begin(%s, '{}'::jsonb, scope => 'pipeline')"
COMPLETE = "SELECT idem_complete(%s, 201, %s::bytea, scope => 'pipeline', token => %s::bigint)"


def pipelined(dsn, key, work, token=None):
    with psycopg.connect(dbname=dsn) as connection, connection.pipeline():
        claim = connection.execute(BEGIN, (key,)).fetchone()
        if claim[0] == "execute":
            work(connection)
            connection.execute(COMPLETE, (key, b"paid", token))  # its result is read with that of COMMIT
            connection.commit()
        return claim


@pytest.fixture
def pay(sql, key):
    return lambda connection: connection.execute("INSERT INTO effect VALUES (%s)", (key,))


@pytest.fixture
def count(sql, key):
    return lambda: sql("SELECT count(*) FROM effect WHERE note = %s", key)[0][0]


def test_a_repeat_is_replayed(dsn, key, pay, count):
    assert pipelined(dsn, key, pay)[0] == "execute"
    assert pipelined(dsn, key, pay) == ("replay", 201, b"paid")
    assert count() == 1


def test_an_exception_frees_the_key(dsn, key, pay, count):
    def broken(connection):
        pay(connection)
        raise ValueError

    with pytest.raises(ValueError):
        pipelined(dsn, key, broken)
    assert count() == 0
    assert pipelined(dsn, key, pay)[0] == "execute"


def test_what_is_not_completed_is_not_committed(dsn, key, pay, count):
    with pytest.raises(psycopg.Error) as failure:
        pipelined(dsn, key, pay, token=1)
    assert failure.value.sqlstate == "ID409"
    assert count() == 0
    assert pipelined(dsn, key, pay)[0] == "execute"
