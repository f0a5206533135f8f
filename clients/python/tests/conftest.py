"""PGHOST, PGPORT, PGUSER and PGDATABASE name a server with the extension; each run has a database of its own."""

import os
import uuid

import psycopg
import pytest


@pytest.fixture(scope="session")
def dsn():
    name = f"idempotency_python_{uuid.uuid4().hex[:12]}"
    base = {"dbname": os.environ.get("PGDATABASE") or "postgres"}
    with psycopg.connect(**base, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    with psycopg.connect(dbname=name, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION idempotency; CREATE TABLE effect (note text)")
    yield name
    with psycopg.connect(**base, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sql(dsn):
    """A look at what is stored."""
    with psycopg.connect(dbname=dsn, autocommit=True) as connection:
        yield lambda text, *values: (lambda cursor: cursor.fetchall() if cursor.description else None)(
            connection.execute(text, values)
        )


@pytest.fixture
def key():
    return uuid.uuid4().hex
