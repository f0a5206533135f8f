"""The scenario of records beyond memory: keys that are UUIDs of version 4, which lie anywhere in the index,
against version 7, which grow with time. It leaves the server as it found it, but for the records, which
are gone."""

import os
import threading
from pathlib import Path

from figures import Chart, Figure, Findings
from large import timed
from load import Comparison, Contender, Load, sample
from many_records import Database, in_words
from server import DAY, RECORD_COLUMNS, restart, say
from single_requests import COMPLETED, REPLAYED

BATCH_ROWS = 250 * 1000
# One of so many has expired: those that arrived first. VACUUM leaves the indexes as they are if less than
# 2 % of the pages have dead rows.
EXPIRED_SHARE = 20
RECENT = 50 * 1000
MORE = 4  # times the memory, at first
RATE = 1000  # first executions per second while WAL is measured
FORGETTING = 0.25  # seconds between two visits
# Settings of the runs that show what goes into WAL.
WAL_RUNS = {
    "full_page_writes = off": {"full_page_writes": "off"},
    "one checkpoint": {},
    "a checkpoint every 30 s": {"checkpoint_timeout": 30},
    "a checkpoint every 30 s, wal_compression = lz4": {"checkpoint_timeout": 30, "wal_compression": "lz4"},
}
SIZES = {
    "table": "pg_relation_size('idempotency.record')",
    "primary key": "pg_relation_size('idempotency.record_pkey')",
    "index of retention": "pg_relation_size('idempotency.record_retained_until')",
}


class Forgetful:
    """As long as a block takes, the operating system keeps no page of these databases: then the memory is
    shared_buffers. A limit of a control group needs rights that a benchmark does not have everywhere, and
    debug_io_direct needs PostgreSQL 16."""

    def __init__(self, databases):
        self.folders = [Path(one.sql.text("SHOW data_directory"),
                             "base", one.sql.text("SELECT oid FROM pg_database"
                                                  " WHERE datname = current_database()"))
                        for one in databases]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def run(self):
        while not self.ended.wait(FORGETTING):
            for folder in self.folders:
                for file in folder.iterdir():
                    self.forget(file)

    @staticmethod
    def forget(file):
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class Keyed(Database):
    """With so many records in the order of their arrival, whose keys are UUIDs of this version."""

    def __init__(self, admin, version, rows):
        super().__init__(admin, f"idem_bench_v{version}")
        self.version, self.rows, self.expired = version, rows, rows // EXPIRED_SHARE

    def arrive(self):
        # Retention ends in the order of arrival, too.
        self.insert(1, self.expired, -3600, -60)
        for first in range(self.expired + 1, self.rows + 1, BATCH_ROWS):
            last = min(first + BATCH_ROWS - 1, self.rows)
            self.insert(first, last, *(DAY / 2 * (1 + number / self.rows) for number in (first, last)))
        self.vacuum()

    def insert(self, first, last, starts, ends):
        self.sql.rows(
            f"INSERT INTO idempotency.record ({RECORD_COLUMNS})"
            f" SELECT scope, principal, bench.uuid_of_number({self.version}, token), status, status_code,"
            " attempt, token, lease_us, created_at, claimed_at, expires_at, retained_until, finished_at,"
            f" body FROM bench.records('bench', {first}, {last}, {starts}, {ends}, false)")

    def contender(self, work, script, counted, oldest=0):
        return Contender(f"{work}, version {self.version}", script, counted, database=self.name,
                         records=self.rows,
                         defines=(f"version={self.version}", f"oldest={oldest}"))

    def first(self):
        return self.contender("first executions", "uuid_first", COMPLETED)

    def replays_of_any(self):
        return self.contender("replays of any record", "uuid_replay", REPLAYED,
                              self.expired + 1)

    def replays_of_recent(self):
        return self.contender(f"replays of the last {in_words(RECENT)}", "uuid_replay", REPLAYED,
                              self.rows - RECENT + 1)

    def wal(self):
        """Bytes and page images up to now, those of this session included."""
        self.sql.rows("SELECT pg_stat_force_next_flush()")
        return [float(number) for number in
                self.sql.rows("SELECT wal_bytes, wal_fpi FROM pg_stat_wal")[0]]

    def wal_of(self, action, *arguments):
        self.sql.rows("CHECKPOINT")
        before = self.wal()
        result = action(*arguments)
        return result, [after - earlier for earlier, after in zip(before, self.wal())]

    def wal_per_request(self, seconds):
        load = Load(self.first(), self.sql, 4, rate=RATE, time=seconds)
        calls, (size, images) = self.wal_of(load.ended)
        return [size / len(calls), images / len(calls), len(calls)]

    def sweep(self):
        while self.sql.number("SELECT idem_cleanup(100000)") > 0:
            pass


def fill(databases):
    """Both at a time; page images would only be thrown away."""
    databases[0].set("full_page_writes", "off")
    say(f"beyond_memory: {in_words(databases[0].rows)} records, twice")
    threads = [threading.Thread(target=database.arrive) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    databases[0].set("full_page_writes", "on")


def turn(contender, database, options):
    """The first half fills shared_buffers with what is used."""
    database.sql.rows("CHECKPOINT")
    calls = Load(contender, database.sql, options.clients, time=2 * options.slice).ended()
    return sample(calls, options.slice)


def speeds(databases, options, memory):
    works = [(database, make(database))
             for make in (Keyed.first, Keyed.replays_of_any, Keyed.replays_of_recent)
             for database in databases]
    samples = {contender.name: [] for _, contender in works}
    for number in range(options.rounds):
        say(f"beyond_memory: {memory} MB, round {number + 1} of {options.rounds}")
        for database, contender in works if number % 2 == 0 else reversed(works):
            samples[contender.name].append(turn(contender, database, options))
    return Comparison({f"{name}, {memory} MB": taken for name, taken in samples.items()})


def with_memory(server, databases, options, memory):
    server.sql.rows(f"ALTER SYSTEM SET shared_buffers = '{memory}MB'")
    restart([server.sql, *(database.sql for database in databases)])
    return speeds(databases, options, memory)


def wal_runs(server, databases, seconds):
    """Rows of a table: bytes and page images of a first execution, for both versions."""
    rows = {}
    for name, settings in WAL_RUNS.items():
        say(f"beyond_memory: WAL, {name}")
        for setting, value in settings.items():
            server.set(setting, value)
        rows[name] = [database.wal_per_request(seconds) for database in databases]
        for setting in settings:
            server.reset(setting)
    return rows


def clean_up(database):
    say(f"beyond_memory: sweeping, version {database.version}")
    swept, (swept_wal, _) = database.wal_of(timed, database.sweep)
    vacuumed, (vacuum_wal, images) = database.wal_of(timed, database.vacuum)
    rows = database.expired
    return {"seconds of sweeping": swept, "WAL of sweeping, bytes per record": swept_wal / rows,
            "seconds of VACUUM": vacuumed, "WAL of VACUUM, bytes per record": vacuum_wal / rows,
            "page images of VACUUM per record": images / rows}


def bytes_each(database):
    return {f"{what}, bytes per record": database.sql.number(f"SELECT {size}") / database.rows
            for what, size in SIZES.items()}


def pairs_of(found):
    """What was measured, and the names of both versions."""
    for each in found:
        names = list(each.samples)
        for random, ordered in zip(names[0::2], names[1::2]):
            yield each, random.replace(", version 4", ""), random, ordered


def table_of(found, sizes, wal, cleaned):
    table = [["", "version 4", "version 7", "7 / 4"]]

    def line(what, pair, digits=2):
        ratio = f"{pair[1] / pair[0]:.2f}" if pair[0] else ""
        table.append([what, *(f"{value:.{digits}f}" for value in pair), ratio])

    for what in sizes[0]:
        line(what, [each[what] for each in sizes], 0)
    for each, what, *names in pairs_of(found):
        for column, unit, digits in (("per_second", "/s", 0), ("p50", ", p50 ms", 2), ("p99", ", p99 ms", 2)):
            line(what + unit, [each.median(name, column) for name in names], digits)
    for name, pair in wal.items():
        for what, column, digits in (("WAL bytes", 0, 0), ("page images", 1, 3), ("requests", 2, 0)):
            line(f"{what}, {name}", [run[column] for run in pair], digits)
    for what in cleaned[0]:
        line(what, [each[what] for each in cleaned])
    return table


def beyond_memory(server, options):
    rows = options.records or 10**7
    with Keyed(server.sql, 4, rows) as random, Keyed(server.sql, 7, rows) as ordered:
        databases = [random, ordered]
        server.set("max_wal_size", 2048)
        fill(databases)
        sizes = [bytes_each(database) for database in databases]
        with Forgetful(databases):
            found = [with_memory(server, databases, options, memory)
                     for memory in (MORE * options.memory, options.memory)]
            wal = wal_runs(server, databases, options.seconds)
            cleaned = [clean_up(database) for database in databases]
    server.sql.rows("ALTER SYSTEM RESET shared_buffers; ALTER SYSTEM RESET max_wal_size")
    restart([server.sql])
    return findings(rows, options, found, (sizes, wal, cleaned))


def findings(rows, options, found, others):
    ratios = {what: each.ratios(ordered, random) for each, what, random, ordered in pairs_of(found)}
    figures = [Figure(f"{what}: version 7 / version 4", samples, 0.9) for what, samples in ratios.items()]
    chart = Chart("beyond_memory", f"{in_words(rows)} records: version 7 against version 4",
                  list(ratios), {"throughput": [figure.value for figure in figures]}, 1)
    sizes, wal, cleaned = others
    return Findings("beyond_memory", table_of(found, sizes, wal, cleaned), figures, [chart],
                    {"rows": rows, "memory_mb": options.memory, "sizes": sizes, "wal": wal,
                     "cleaned": cleaned, "contenders": [each.details() for each in found]})
