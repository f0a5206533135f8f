"""The scenario of as many live records as a third of the free disk holds: what grows with their number,
against a hundred thousand. It leaves the server as it found it, but for the records, which are gone."""

import shutil
import subprocess
import time
from statistics import median

from figures import Chart, Figure, Findings
from load import Contender, Course, Load, side_by_side
from many_records import BATCH_ROWS, FEW_ROWS, SINCE_CHECKPOINT, Database, in_words
from server import DAY, RECORD_COLUMNS, restart, say
from single_requests import COMPLETED, REPLAYED

BYTES_OF_RECORD = 650  # in the table and its indexes, and room for rows that vacuum has not reached
EXPIRING = 300 * 1000
CRASH_AFTER = 10  # seconds of load since the checkpoint
PATIENCE = 1800  # seconds
# When records expire, in seconds from their loading: not while the load asks for them.
LIVES = (DAY // 4, DAY)

SIZES = ("SELECT pg_relation_size('idempotency.record'),"
         " sum(pg_relation_size(indexrelid)) FILTER (WHERE indisprimary),"
         " sum(pg_relation_size(indexrelid)) FILTER (WHERE NOT indisprimary)"
         " FROM pg_index WHERE indrelid = 'idempotency.record'::regclass")
EXPIRED = ("EXISTS (SELECT FROM idempotency.record WHERE retained_until < now()"
           " ORDER BY retained_until LIMIT 1)")


def a_third_of_the_disk(sql):
    folder = sql.text("SHOW data_directory")
    return shutil.disk_usage(folder).free // 3 // BYTES_OF_RECORD


def timed(action, *arguments):
    begun = time.time()
    action(*arguments)
    return time.time() - begun


class Filled(Database):
    """With so many live records, by COPY, as a dump or a move from elsewhere would bring them."""

    def __init__(self, admin, name, rows):
        super().__init__(admin, name)
        self.rows, self.seconds = rows, 0
        # Their keys are spread over the whole index, where new ones also go.
        for first in range(1, rows + 1, BATCH_ROWS):
            last = min(first + BATCH_ROWS - 1, rows)
            say(f"large: {in_words(last)} of {in_words(rows)}")
            self.seconds += timed(self.copy, "bench", first, last, *LIVES)
        self.vacuum()
        self.sql.rows("CHECKPOINT")

    def copy(self, scope, first, last, starts, ends, by_key=True):
        psql = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.name, "-c"]
        query = (f"COPY (SELECT * FROM bench.records('{scope}', {first}, {last}, {starts}, {ends},"
                 f" {by_key})) TO STDOUT (FORMAT binary)")
        with subprocess.Popen([*psql, query], stdout=subprocess.PIPE) as source:
            subprocess.run([*psql, f"COPY idempotency.record ({RECORD_COLUMNS}) FROM STDIN"
                                   " (FORMAT binary)"], stdin=source.stdout, check=True)
        if source.returncode != 0:
            raise RuntimeError(f"COPY TO STDOUT ended with {source.returncode}")

    def refill(self):
        self.empty()
        self.copy("bench", 1, self.rows, *LIVES)
        self.vacuum()

    def first_executions(self):
        return Contender(f"first executions, {self.name}", "ours_pipelined", COMPLETED,
                         database=self.name)

    def replays(self):
        return Contender(f"replays, {self.name}", "replay_ours", REPLAYED, database=self.name,
                         records=self.rows)

    def selects(self):
        return Contender(f"SELECT by key, {self.name}", "replay_select_record",
                         database=self.name, records=self.rows)

    def restarts(self, sessions):
        """Seconds until a replay is answered, after an orderly restart and after a crash."""
        orderly = timed(self.restart, sessions, "fast")
        self.sql.rows("CHECKPOINT")
        Load(self.first_executions(), self.sql, 4, time=CRASH_AFTER).ended()
        return [orderly, timed(self.restart, sessions, "immediate")]

    def restart(self, sessions, mode):
        restart(sessions, mode, PATIENCE)
        if self.sql.text(f"SELECT outcome FROM idem_begin(bench.key_of({self.rows // 2}),"
                         " scope => 'bench')") != "replay":
            raise RuntimeError(f"{self.name}: a record was lost")

    def drain(self, server):
        """Seconds in which the sweeper removes what has expired within the last hour, vacuum what
        that left behind, and another vacuum nothing."""
        self.copy("expired", 1, EXPIRING, -61 * 60, -60, by_key=False)
        self.vacuum()
        self.sql.rows("CHECKPOINT")
        server.sweep_every(1)
        drained = timed(self.wait_until_swept)
        server.sweep_every(0)
        return [drained, timed(self.vacuum), timed(self.vacuum)]

    def wait_until_swept(self):
        give_up = time.time() + PATIENCE
        while self.sql.text(f"SELECT {EXPIRED}") == "t":
            if time.time() > give_up:
                raise RuntimeError(f"{self.name}: not swept after {PATIENCE} s")
            time.sleep(0.1)


def costs(database, server, *others):
    """By name, of one of the two. The sessions of the others do not outlive a restart either."""
    sizes = [float(size) / database.rows for size in database.sql.rows(SIZES)[0]]
    say(f"large: {database.name}: restarts")
    restarts = database.restarts([server.sql, database.sql, *(other.sql for other in others)])
    say(f"large: {database.name}: sweeping")
    return dict(zip(("loaded, records/s", "table, bytes/record", "primary key, bytes/record",
                     "other indexes, bytes/record", "orderly restart, s", "restart after a crash, s",
                     f"{in_words(EXPIRING)} swept, s", "VACUUM after that, s",
                     "another VACUUM, s"),
                    [database.rows / database.seconds, *sizes, *restarts, *database.drain(server)]))


def speeds(few, many, options):
    """First executions, replays and plain look-ups, in both, in turn."""
    databases = {few.name: few, many.name: many}
    # In the middle of a checkpoint's cycle, as in live_rows.
    many.copy("later", 1, SINCE_CHECKPOINT, *LIVES)

    def prepare(contender):
        if contender.database == few.name and contender.counted == COMPLETED:
            few.refill()

    contenders = [make(database) for make in (Filled.first_executions, Filled.replays, Filled.selects)
                  for database in (few, many)]
    return contenders, side_by_side(contenders, Course(
        "large", options.clients, options.rounds, options.slice, prepare,
        sql_of=lambda contender: databases[contender.database].sql))


def large(server, options):
    rows = options.records or a_third_of_the_disk(server.sql)
    with Filled(server.sql, "idem_bench_few", FEW_ROWS) as few:
        # Measured first, while a restart has no other work to do.
        of_few = costs(few, server)
        with Filled(server.sql, "idem_bench_many", rows) as many:
            of_many = costs(many, server, few)
            contenders, found = speeds(few, many, options)
    table = [["", in_words(few.rows), in_words(rows), "ratio"]]
    for what, small in of_few.items():
        table.append([what, *(f"{value:.2f}" for value in (small, of_many[what],
                                                           of_many[what] / small))])
    ratios = {}
    for ours, theirs in zip(contenders[0::2], contenders[1::2]):
        what = ours.name.split(",")[0]
        ratios[what] = found.ratios(theirs.name, ours.name)
        table.append([f"{what}/s", *(f"{found.median(one.name, 'per_second'):.0f}"
                                     for one in (ours, theirs)), f"{median(ratios[what]):.2f}"])
        for quantile in ("p50", "p99"):
            low, high = (found.median(one.name, quantile) for one in (ours, theirs))
            table.append([f"{what}, {quantile} ms", f"{low:.3f}", f"{high:.3f}", f"{high / low:.2f}"])
    figure = Figure(f"first execution beside {in_words(rows)} live records / {in_words(FEW_ROWS)}",
                    ratios["first executions"], 0.9)
    chart = Chart("large", f"{in_words(rows)} live records, against {in_words(FEW_ROWS)}", list(ratios),
                  {"throughput": [median(values) for values in ratios.values()]}, 0.9)
    return Findings("large", table, [figure], [chart],
                    {"rows": rows, "few": of_few, "many": of_many, "contenders": found.details()})
