"""PGHOST, PGPORT, PGUSER and PGDATABASE name a server with the extension; each run has a database of its own."""

import os
import uuid

import psycopg
import pytest

USER = os.environ.get("PGUSER", "postgres")
PORT = os.environ.get("PGPORT", "5432")
HOST = os.environ.get("PGHOST", "127.0.0.1")


def drop(admin, name):
    """DROP waits 5 s for the sessions that it ends."""
    admin.execute("SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = %s", (name,))
    admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


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
        drop(admin, name)


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


@pytest.fixture(scope="session")
def django_settings(dsn):
    import django
    from django.conf import settings

    settings.configure(
        ROOT_URLCONF="tests.test_frameworks", ALLOWED_HOSTS=["*"], SECRET_KEY="test",
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": dsn, "USER": USER, "HOST": HOST, "PORT": PORT}},
    )  # fmt: skip
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # these tests have a loop
    django.setup()
    yield
    from django.db import connections

    connections.close_all()
