"""A database for one class of tests, on the server that libpq's variables name.

PGHOST and PGPORT say where it is; PGUSER is a superuser there.
"""

import contextlib
import os
import pathlib

import psycopg
from psycopg.conninfo import make_conninfo

from waiting import unique

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "examples/payments/schema.sql"


class Database:
    """A database with the example's schema, and a superuser's look at it."""

    def __init__(self):
        self.name = unique("payments")
        with psycopg.connect(dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING 'UTF8'")
        self.connect()
        self.connection.execute(SCHEMA.read_text())

    @property
    def conninfo(self):
        """Durable even where the cluster is not: what was answered must survive a crash."""
        known = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
        given = {word: os.environ[name] for word, name in known.items() if name in os.environ}
        return make_conninfo(dbname=self.name, options="-c synchronous_commit=on", **given)

    def connect(self):
        self.connection = psycopg.connect(self.conninfo, autocommit=True)

    def rows(self, query, *values):
        return self.connection.execute(query, values).fetchall()

    def value(self, query, *values):
        return self.rows(query, *values)[0][0]

    def run(self, statement, *values):
        return self.connection.execute(statement, values).rowcount

    def charges(self, tenant):
        return self.value("SELECT count(*) FROM payments.charge WHERE tenant = %s", tenant)

    def records(self, tenant):
        return self.value("SELECT count(*) FROM idempotency.records WHERE principal = %s", tenant)

    def record(self, tenant, key):
        """The status, attempt and recovery point of a request; None if nothing is stored."""
        found = self.rows(
            "SELECT status, attempt, recovery_point FROM idempotency.records"
            " WHERE principal = %s AND key = %s",
            tenant,
            key,
        )
        return found[0] if found else None

    def waiting(self):
        """How many connections wait for a lock: requests that stand before a gate."""
        return self.value(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )

    def claims(self):
        """How many transactions hold a key."""
        return self.value("SELECT count(*) FROM idempotency.in_flight WHERE kind = 'transactional'")

    @contextlib.contextmanager
    def gate(self):
        """While it is closed no handler gets past its first write to a table of the example."""
        with psycopg.connect(self.conninfo) as holder:
            tables = holder.execute(
                "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class"
                " WHERE relnamespace = 'payments'::regnamespace AND relkind = 'r'"
            )
            holder.execute(f"LOCK TABLE {tables.fetchone()[0]} IN SHARE MODE")
            yield
            holder.rollback()

    def drop(self):
        self.connection.close()
        with psycopg.connect(dbname="postgres", autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {self.name} WITH (FORCE)")
