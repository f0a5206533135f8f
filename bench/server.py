"""The server under test, as its operator sees it: a throw-away one, whose records are truncated and
whose settings are changed."""

import os
import subprocess
import sys
import time
from pathlib import Path

DAY = 24 * 60 * 60
TABLES = Path(__file__).with_name("tables.sql")
# Of bench.records.
RECORD_COLUMNS = ("scope, principal, key, status, status_code, attempt, token, lease_us, created_at,"
                  " claimed_at, expires_at, retained_until, finished_at, body")


def say(line):
    """Progress."""
    print(f"        {line}", file=sys.stderr, flush=True)


class Sql:
    """A session of psql that ends the run on the first error. No value may have a tab or a line
    break."""

    END = "--- end of answer ---"

    def __init__(self, database=None, host=None):
        self.command = ["psql", "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1",
                        *(["--host", host] if host else []), *([database] if database else [])]
        self.open()

    def open(self):
        """Also once more, after `close`."""
        self.psql = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
        self.rows("SET client_min_messages = warning")

    def rows(self, statements):
        self.psql.stdin.write(f"{statements};\n\\echo {self.END}\n")
        self.psql.stdin.flush()
        rows = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == self.END:
                return rows
            rows.append(line.rstrip("\n").split("\t"))
        raise RuntimeError(f"psql ended at: {statements}")

    def text(self, query):
        return self.rows(query)[0][0]

    def number(self, query):
        return float(self.text(query))

    def wait_until(self, condition):
        while self.text(f"SELECT {condition}") != "t":
            time.sleep(0.02)

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


class Server:
    """A database with the extension, and the server around it."""

    def __init__(self, database=None, host=None):
        self.sql = Sql(database, host)
        self.sql.rows(TABLES.read_text())

    def set(self, setting, value):
        """The value is in the setting's own unit."""
        self.sql.rows(f"ALTER SYSTEM SET {setting} = '{value}'; SELECT pg_reload_conf()")
        self.sql.wait_until(
            f"(SELECT setting FROM pg_settings WHERE name = '{setting}') = '{value}'")

    def reset(self, setting):
        self.sql.rows(f"ALTER SYSTEM RESET {setting}; SELECT pg_reload_conf()")

    def make_key_file(self):
        """By the server's user, whose alone it has to be; beside the data directory, not in it."""
        file = self.sql.text("SHOW data_directory") + ".key"
        self.sql.rows("COPY (SELECT 'bench ' || encode(sha256(gen_random_uuid()::text::bytea),"
                      f" 'base64') || ' current') TO PROGRAM 'umask 077; cat > {file}'")
        self.set("idempotency.encryption_key_file", file)

    def sweep_every(self, seconds):
        """0: not at all, and then no sweeper is left when it returns."""
        self.set("idempotency.cleanup_interval", seconds)
        if seconds == 0:
            self.sql.wait_until("NOT EXISTS (SELECT FROM pg_stat_activity"
                                " WHERE backend_type = 'idempotency sweeper')")

    def begin_afresh(self):
        """Nothing is left of the contender before: no rows, and no pages that a checkpoint has to
        write."""
        self.empty()
        self.sql.rows("CHECKPOINT")
        redis("FLUSHALL")

    def empty(self):
        self.sql.rows("TRUNCATE idempotency.record, bench.payment, bench.keyed_payment,"
                      " bench.request_key; SELECT idem_stats_reset()")

    def insert_records(self, scope, first, last, starts, ends, by_key=True):
        self.sql.rows(f"INSERT INTO idempotency.record ({RECORD_COLUMNS}) SELECT * FROM bench.records("
                      f"'{scope}', {first}, {last}, {starts}, {ends}, {by_key})")

    def vacuum(self, table="idempotency.record"):
        """As after some time in service: statistics and hint bits are there."""
        self.sql.rows(f"VACUUM ANALYZE {table}")

    def record_sizes(self):
        """Of the table and of its indexes, bytes."""
        sizes = self.sql.rows("SELECT pg_relation_size('idempotency.record'),"
                              " pg_indexes_size('idempotency.record')")[0]
        return [float(size) for size in sizes]

    def live_copy_size(self):
        """What the table would be if nothing had ever been deleted from it: a fresh copy of the
        records that have not expired, with the table's own fillfactor."""
        fill = self.sql.text(
            "SELECT coalesce((SELECT option_value FROM pg_options_to_table(reloptions)"
            " WHERE option_name = 'fillfactor'), '100')"
            " FROM pg_class WHERE oid = 'idempotency.record'::regclass")
        return float(self.sql.rows(
            f"CREATE TEMP TABLE live WITH (fillfactor = {fill})"
            " AS SELECT * FROM idempotency.record WHERE retained_until > clock_timestamp();"
            "SELECT pg_relation_size('live'); DROP TABLE live")[0][0])

    def swept(self, scope):
        return self.sql.number("SELECT coalesce(sum(swept), 0) FROM idempotency.stats"
                               f" WHERE NOT total AND scope = '{scope}'")


def as_server(*command, given=None, wait=True):
    """A program by the server's user. A process if it is not to be waited for."""
    command = [*os.environ["IDEM_AS_SERVER"].split(), *command]
    if not wait:
        return subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return subprocess.run(command, check=True, cwd="/", input=given, text=True,
                          stdin=None if given else subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def restart(sessions, mode="fast", patience=600):
    """The server of these sessions, which go on after it."""
    folder = sessions[0].text("SHOW data_directory")
    as_server("pg_ctl", "restart", "--silent", "--wait", "--timeout", str(patience), "-m", mode,
              "-D", folder, "-l", f"{folder}.log")
    for session in sessions:
        session.close()
        session.open()


def redis(*command, lines=None):
    """redis-cli, for what is not measured."""
    return subprocess.run(["redis-cli", "-s", os.environ["REDIS_SOCKET"], *command], check=True,
                          text=True, input=lines or "", stdout=subprocess.PIPE).stdout


def describe_machine(sql):
    """Where a run took place: without that its numbers say little."""
    settings = sql.rows(
        "SELECT name, current_setting(name) FROM pg_settings"
        " WHERE name IN ('fsync', 'synchronous_commit', 'wal_sync_method', 'max_wal_size')"
        " OR (source IN ('configuration file', 'command line') AND name !~"
        " '(directory|directories|file|^port|^lc_|log_|timezone|TimeZone|DateStyle)')"
        " ORDER BY name")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    information = redis("INFO", "server").splitlines()
    return {"cores": os.cpu_count(), "memory_gib": pages / 2**30,
            "load_average_at_start": os.getloadavg()[0],
            "server": sql.text("SELECT version()"), "settings": dict(settings),
            "redis": [line for line in information if line.startswith("redis_version")][0]}
