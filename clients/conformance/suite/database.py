"""The database of a run, and a superuser's look at it: what is stored, who waits, and gates.

libpq's variables name the server: PGHOST (a socket's folder or an address), PGPORT, PGUSER.
"""

import contextlib
import itertools
import os
import threading

import psycopg

from .waiting import unique, wait_until

_gates = itertools.count(1)
_mishaps = itertools.count(1)

SCHEMA = """
CREATE EXTENSION idempotency;
CREATE TABLE effect (id bigserial, principal text, key text, note text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE hook (name text, scope text, key text, attempt integer, outcome text);
-- The hooks of a request whose key ends in -gate-N wait at gate N.
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(substring(NEW.key FROM '-gate-([0-9]+)$')::bigint);
    RETURN NEW;
END $$;
CREATE TRIGGER wait_at_gate BEFORE INSERT ON hook FOR EACH ROW WHEN (NEW.key ~ '-gate-[0-9]+$') EXECUTE FUNCTION wait_at_gate();
-- A failure that may be retried is not due while a case looks at it.
SELECT idem_policy_set('POST /leased', retry_base => '1 day', retry_cap => '1 day', max_body_bytes => 100000);
SELECT idem_policy_set('POST /uncertain', on_lease_expiry => 'unknown', retry_base => '1 day', retry_cap => '1 day');
SELECT idem_policy_set('POST /judged_leased', on_lease_expiry => 'unknown', retry_base => '1 day', retry_cap => '1 day');
-- Longer than the window of /derive.
SELECT idem_policy_set('POST /derive', retention => '1 day');
SELECT idem_policy_set('POST /streamed', max_body_bytes => 100000);
SELECT idem_policy_set('POST /pass', max_body_bytes => 2000, on_large_body => 'omit');
SELECT idem_policy_set('POST /configured', exclude_fields => '{trace_id,$.meta.sent_at}');
SELECT idem_policy_set('POST /omit', retention => '1 day');
SELECT idem_policy_set('POST /small', max_attempts => 1);
SELECT idem_policy_set('POST /unprotected', on_lease_expiry => 'unknown');
-- Workers. The first is due again immediately; a failure of the second is not, while a case looks at it.
SELECT idem_policy_set('worker/soon/*', store_request => true, retry_base => '0');
SELECT idem_policy_set('worker/late/*', store_request => true, retry_base => '1 day', retry_cap => '1 day');
SELECT idem_policy_set('worker/thrice/*', store_request => true, retry_base => '0', max_attempts => 3);
SELECT idem_policy_set('worker/uncertain/*', store_request => true, retry_base => '0', on_lease_expiry => 'unknown');
-- Errors that a case has planned: of effects, when they are made or at COMMIT, and of the workers' claims.
CREATE TABLE mishap (name text PRIMARY KEY, state text, times integer, counter regclass);
CREATE FUNCTION meet_mishap(text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    planned public.mishap;
BEGIN
    SELECT * INTO planned FROM public.mishap WHERE name = $1;
    IF FOUND AND nextval(planned.counter) <= planned.times THEN  -- no rollback takes the number back
        RAISE EXCEPTION 'a mishap' USING ERRCODE = planned.state;
    END IF;
END $$;
CREATE FUNCTION meet_mishap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM meet_mishap(NEW.note);
    RETURN NEW;
END $$;
CREATE TRIGGER mishap BEFORE INSERT ON effect FOR EACH ROW WHEN (NEW.note LIKE 'mishap %') EXECUTE FUNCTION meet_mishap();
CREATE CONSTRAINT TRIGGER mishap_at_commit AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.note LIKE 'late mishap %') EXECUTE FUNCTION meet_mishap();
CREATE SCHEMA before_public;
CREATE FUNCTION before_public.idem_claim_due(scope text, max_claims integer, lease interval DEFAULT NULL, holder text DEFAULT NULL)
RETURNS SETOF idem_due LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.meet_mishap($1);
    RETURN QUERY SELECT * FROM public.idem_claim_due($1, $2, $3, $4);
END $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = before_public, public', current_database()); END $$;
"""


class Database:
    def __init__(self):
        self.name = unique("conformance").replace("-", "_")
        with psycopg.connect(dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING 'UTF8'")
        self.local = threading.local()
        self.connect().execute(SCHEMA)

    def connect(self):
        return psycopg.connect(dbname=self.name, autocommit=True, application_name="suite")

    @property
    def connection(self):
        """One for each thread."""
        if not hasattr(self.local, "connection"):
            self.local.connection = self.connect()
        return self.local.connection

    def rows(self, query, *values):
        return self.connection.execute(query, values).fetchall()

    def value(self, query, *values):
        return self.rows(query, *values)[0][0]

    def run(self, statement, *values):
        return self.connection.execute(statement, values)

    def effects(self, principal, note=None):
        return self.value(
            "SELECT count(*) FROM effect WHERE principal = %s AND note = coalesce(%s::text, note)", principal, note
        )

    def record(self, principal, key=None):
        """(status, attempt, recovery_point, scope) of a principal's record; None if there is none."""
        found = self.rows(
            "SELECT status, attempt, recovery_point, scope, key FROM idempotency.records"
            " WHERE principal = %s AND key = coalesce(%s::text, key)",
            principal,
            key,
        )
        return found[0] if found else None

    def told(self, principal):
        """(status, error, reference) of a principal's record."""
        (found,) = self.rows("SELECT status, error, reference FROM idempotency.records WHERE principal = %s", principal)
        return found

    def hooks(self, name, key):
        return self.rows("SELECT scope, attempt, outcome FROM hook WHERE name = %s AND key = %s", name, key)

    def gate(self):
        return Gate(self)

    def mishap(self, name, state, times):
        return Mishap(self, name, state, times)

    def holder_of(self, application):
        """The backends of a server that hold a claim in a transaction."""
        return [
            pid
            for (pid,) in self.rows(
                "SELECT f.pid FROM idempotency.in_flight AS f JOIN pg_stat_activity AS a USING (pid)"
                " WHERE f.kind = 'transactional' AND a.application_name = %s AND a.datname = current_database()",
                application,
            )
        ]

    def drop(self):
        with psycopg.connect(dbname="postgres", autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


class Mishap:
    """The first so many effects with this note, or claims of this scope, fail with this SQLSTATE."""

    def __init__(self, database, name, state, times):
        self.database, self.name = database, name
        self.counter = f"mishap_{next(_mishaps)}"
        database.run(f"CREATE SEQUENCE {self.counter}")
        database.run("INSERT INTO mishap VALUES (%s, %s, %s, %s)", name, state, times, self.counter)

    def met(self):
        """How often it was met, or was over."""
        return self.database.value(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {self.counter}")

    def end(self):
        self.database.run("DELETE FROM mishap WHERE name = %s", self.name)


class Gate:
    """Handlers that were told its number wait until it is opened."""

    def __init__(self, database):
        self.number = next(_gates)
        self.database = database
        self.shut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()

    def shut(self):
        self.holder = self.database.connect()
        self.holder.execute("SELECT pg_advisory_lock(%s)", (self.number,))

    def open(self):
        if self.holder:
            self.holder.close()
            self.holder = None

    def waiting(self):
        return self.database.value(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 0 AND objid = %s AND objsubid = 1"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            self.number,
        )

    def wait_for(self, count=1):
        wait_until(f"{count} stand before the gate", lambda: self.waiting() >= count)
