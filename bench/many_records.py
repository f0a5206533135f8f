"""Scenarios about many records: live ones, as many that expire as arrive, and a backlog of expired
ones. Each leaves the server as it found it, but for the records, which are gone."""

import time
from statistics import median

from figures import Chart, Figure, Findings
from load import Calls, Contender, Course, Load, side_by_side
from single_requests import COMPLETED
from server import DAY, Server, Sql, say

WITHOUT_BUSINESS = Contender("ours, without business", "ours_without_business", COMPLETED)


def in_words(rows):
    return f"{rows // 10**6} million" if rows >= 10**6 else f"{rows // 1000} thousand"


FEW_ROWS = 100 * 1000
BATCH_ROWS = 1000 * 1000
# The records that 2,000 requests per second add in half of the default checkpoint_timeout.
SINCE_CHECKPOINT = 300 * 1000


class Database(Server):
    """One of its own with the extension, for as long as a block takes."""

    def __init__(self, admin, name):
        self.admin, self.name = admin, name
        self.drop()
        admin.rows(f"CREATE DATABASE {name}")
        session = Sql(name)
        session.rows("CREATE EXTENSION idempotency")
        session.close()
        super().__init__(name)
        # Full images of pages in the WAL and requests, over all turns here.
        self.images = self.requests = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sql.close()
        self.drop()

    def drop(self):
        self.admin.rows(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def count(self, sign):
        self.images += sign * self.sql.number("SELECT wal_fpi FROM pg_stat_wal")
        self.requests += sign * self.sql.number("SELECT count(*) FROM bench.payment")

    def fill(self, wanted):
        """Live records, whose ends are spread over the next day, and their keys over the whole
        index, where new ones go, too."""
        present = int(self.sql.number("SELECT count(*) FROM idempotency.record"))
        while present < wanted:
            last = min(present + BATCH_ROWS, wanted)
            say(f"live_rows: filling up to {in_words(last)}")
            self.insert_records("bench", present + 1, last, 60, DAY)
            present = last

    def fill_quickly(self, wanted):
        """As after some time in service, in the middle of a checkpoint's cycle. Beside few records,
        every page has soon been changed since the checkpoint, so that no more images are logged;
        beside many they go on for a while. Images of whole pages would only be thrown away while
        filling."""
        self.set("full_page_writes", "off")
        self.fill(wanted - SINCE_CHECKPOINT)
        self.vacuum()
        self.set("full_page_writes", "on")
        self.sql.rows("CHECKPOINT")
        self.fill(wanted)
        self.images = self.requests = 0

    def refill(self):
        self.empty()
        self.insert_records("bench", 1, FEW_ROWS, 60, DAY)
        self.vacuum()


def beside(few, many, rows, options):
    """The comparison, and the images per request in both databases."""
    many.fill_quickly(rows)
    few.images = few.requests = 0
    databases = {few.name: few, many.name: many}

    def prepare(contender):
        if contender.database == few.name:
            few.refill()
        databases[contender.database].count(-1)

    contenders = [Contender(name, "ours_pipelined", COMPLETED, database=name) for name in databases]
    found = side_by_side(contenders, Course(
        f"live_rows, {in_words(rows)}", options.clients, options.rounds, options.slice, prepare,
        finish=lambda contender: databases[contender.database].count(1),
        sql_of=lambda contender: databases[contender.database].sql))
    return found, [database.images / database.requests for database in (few, many)]


def live_rows(server, options):
    """What first executions cost beside ever more live records: two databases, in one a hundred
    thousand."""
    levels = [rows for rows in (10**6, 5 * 10**6) if rows < options.live] + [options.live]
    table = [["live records", "per second", "p50 ms", "p99 ms", "ratio", "page images/request"]]
    few_rows = in_words(FEW_ROWS)
    ratios, details = {few_rows: [1.0]}, []
    with Database(server.sql, "idem_bench_few") as few, \
            Database(server.sql, "idem_bench_many") as many:
        for rows in levels:
            found, images = beside(few, many, rows, options)
            for name, database, count in zip((few_rows, in_words(rows)), (few, many), images):
                table.append([name, *found.row(database.name, few.name), f"{count:.3f}"])
            ratios[in_words(rows)] = found.ratios(many.name, few.name)
            details.append({"rows": rows, "page_images_per_request": images,
                            "contenders": found.details()})
    most = in_words(levels[-1])
    figure = Figure(f"first execution beside {most} live records / {few_rows}", ratios[most], 0.9)
    chart = Chart("live_rows", f"First executions beside many live records, against {few_rows}",
                  list(ratios), {"throughput": [median(values) for values in ratios.values()]}, 0.9)
    return Findings("live_rows", table, [figure], [chart], details)


def busiest_over_last(counts, window):
    """The calls of the busiest `window` seconds on end, divided by those of the last."""
    sums = [sum(counts[max(end - window, 0):end]) for end in range(1, len(counts) + 1)]
    return max(sums) / sums[-1]


def steady_round(server, options, sweeping):
    """From an empty table; what is measured begins when as many records expire as arrive, and
    sweeper and autovacuum have found their rhythm."""
    server.sweep_every(0)
    server.begin_afresh()
    server.sweep_every(1 if sweeping else 0)
    settle = options.ttl + max(options.ttl // 3, 5)
    load = Load(WITHOUT_BUSINESS, server.sql, options.clients, time=settle + options.seconds + 5,
                define=f"ttl={options.ttl}")
    begun = time.time()
    time.sleep(settle)
    measured, swept, sizes = time.time(), server.swept("bench"), []
    for second in range(1, options.seconds + 1):
        time.sleep(max(measured + second - time.time(), 0))
        sizes.append(server.record_sizes())
    ended, swept = time.time(), server.swept("bench") - swept
    live = server.live_copy_size()
    all_calls = load.ended()
    calls = all_calls.between(measured, ended)
    counts = [len(second) for second in all_calls.of_each_second(begun, ended)]
    indexes = [index for _, index in sizes]
    half = (len(indexes) + 1) // 2
    # A table keeps its largest size when the rate falls.
    most_live = live * busiest_over_last(counts, options.ttl)
    per_second = len(calls) / (ended - measured)
    say(f"sweeping {'on' if sweeping else 'off'}: {per_second:.0f} first executions per second")
    return {"sweeping": sweeping, "per_second": per_second, "p99_ms": calls.quantile(0.99),
            "swept_per_second": swept / (ended - measured), "table_bytes": sizes[-1][0],
            "live_bytes": live, "most_live_bytes": most_live, "bloat": sizes[-1][0] / most_live,
            "index_growth": max(indexes[half:], default=0) / max(indexes[:half])}


def steady_state(server, options):
    """As many records expire as arrive. Rounds with sweeping on and off alternate (on off off on
    ...). With sweeping off the table grows for the whole round: sweeping is compared with the cost
    of doing nothing. Records live for seconds instead of a day, so autovacuum looks around six
    times in the life of one."""
    server.set("autovacuum_naptime", max(options.ttl // 6, 1))
    rounds = []
    for pair in range(options.pairs):
        say(f"steady_state: pair {pair + 1} of {options.pairs}")
        for sweeping in (pair % 2 == 0, pair % 2 == 1):
            rounds.append(steady_round(server, options, sweeping))
    server.reset("autovacuum_naptime")
    server.sweep_every(0)
    server.begin_afresh()
    on = [found for found in rounds if found["sweeping"]]
    off = [found for found in rounds if not found["sweeping"]]
    table = [["sweeping", "executed/s", "p99 ms", "swept/s", "table MiB", "live MiB",
              "most live MiB", "table/most live", "index growth"]]
    for r in rounds:
        mib = [r[name] / 2**20 for name in ("table_bytes", "live_bytes", "most_live_bytes")]
        table.append(["on" if r["sweeping"] else "off", f"{r['per_second']:.0f}",
                      f"{r['p99_ms']:.2f}", f"{r['swept_per_second']:.0f}",
                      *(f"{size:.1f}" for size in mib), f"{r['bloat']:.2f}",
                      f"{r['index_growth']:.2f}"])
    ratios = [with_it["per_second"] / without["per_second"] for with_it, without in zip(on, off)]
    return Findings("steady_state", table, [
        Figure("throughput, sweeping on / off", ratios, 0.97),
        Figure("table / its live rows at their most", [r["bloat"] for r in on], 1.3, at_most=True),
        Figure("indexes, second half / first half", [r["index_growth"] for r in on], 1.05,
               at_most=True),
    ], [], rounds)


GIVE_UP_SECONDS = 900
AGE_OF_TRANSACTION = (
    "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)"
    " FROM pg_stat_get_activity(NULL) a WHERE backend_type = 'idempotency sweeper'")


def backlog_round(server, options):
    server.sweep_every(0)
    server.begin_afresh()
    say(f"backlog: inserting {options.rows} expired records")
    # Over an hour, until a minute ago.
    server.insert_records("backlog", 1, options.rows, -61 * 60, -60, by_key=False)
    server.vacuum()
    server.sql.rows("CHECKPOINT")
    # The foreground's own records do not expire during the measurement.
    load = Load(WITHOUT_BUSINESS, server.sql, options.clients, rate=options.rate,
                time=GIVE_UP_SECONDS + 2 * options.seconds, define=f"ttl={DAY}")
    time.sleep(5)
    say("backlog: before")
    times = [time.time()]
    time.sleep(options.seconds)
    times.append(time.time())
    say("backlog: draining")
    drained = server.swept("backlog") + options.rows
    server.sweep_every(1)
    longest = drain(server, drained)
    times.append(time.time())
    say(f"backlog: drained in {times[2] - times[1]:.1f} s; after")
    time.sleep(options.seconds)
    times.append(time.time())
    calls = load.stop()
    phases = {name: (start, end, calls.between(start, end))
              for name, start, end in zip(("before", "draining", "after"), times, times[1:])}
    return {"phases": phases, "drain_seconds": times[2] - times[1], "longest_transaction": longest,
            "ratio": phases["draining"][2].quantile(0.99) / phases["before"][2].quantile(0.99)}


def drain(server, drained):
    """Looks over the sweepers' shoulders until they are done: the greatest age of one's
    transaction, with 20 ms between looks."""
    longest, give_up = 0, time.time() + GIVE_UP_SECONDS
    while server.swept("backlog") < drained:
        if time.time() > give_up:
            raise RuntimeError("the backlog is not drained after 15 minutes")
        longest = max(longest, server.sql.number(AGE_OF_TRANSACTION))
        time.sleep(0.02)
    return longest


def phase_row(name, start, end, calls):
    seconds = [Calls([], millis) for millis in calls.of_each_second(start, end) if millis]
    return [name, f"{end - start:.0f}", f"{len(calls) / (end - start):.0f}",
            *(f"{calls.quantile(share):.2f}" for share in (0.5, 0.99, 0.999)),
            f"{max(second.quantile(0.99) for second in seconds):.2f}"]


def backlog(server, options):
    """A large number of records has expired at once, and sweeping starts: do callers notice?"""
    # Makes autovacuum come while the backlog is drained, for which the default of a minute is too
    # long.
    server.set("autovacuum_naptime", 20)
    rounds = [backlog_round(server, options) for _ in range(options.pairs)]
    server.sweep_every(0)
    server.reset("autovacuum_naptime")
    server.begin_afresh()
    table = [["phase", "seconds", "calls/s", "p50 ms", "p99 ms", "p99.9 ms",
              "worst second's p99 ms"]]
    p99 = {}
    for number, found in enumerate(rounds, 1):
        phases = found.pop("phases")
        table += [phase_row(name, *phase) for name, phase in phases.items()]
        p99[f"round {number}"] = [calls.quantile(0.99) for _, _, calls in phases.values()]
    chart = Chart("backlog", "p99 of first executions beside a backlog, milliseconds",
                  list(phases), p99)
    figures = [
        Figure("p99 of first executions, draining / before",
               [found["ratio"] for found in rounds], 2, at_most=True),
        Figure("longest transaction of a sweeper",
               [found["longest_transaction"] for found in rounds], 1, at_most=True, largest=True,
               unit=" s"),
    ]
    return Findings("backlog", table, figures, [chart], {"table": table, "rounds": rounds})
