"""The scenarios. Each leaves the server as it found it, but for the records, which are gone."""

import time
from statistics import median

from figures import Chart, Figure, Findings
from load import Calls, Contender, Course, Load, side_by_side
from server import Server, Sql, redis, say

DAY = 24 * 60 * 60

def counter(names):
    return f"SELECT coalesce(min(least({names})), 0) FROM idempotency.stats WHERE NOT total AND scope = 'bench'"


PAYMENTS = "SELECT count(*) FROM bench.payment"
KEYED_PAYMENTS = "SELECT count(*) FROM bench.keyed_payment"
FINISHED_KEYS = "SELECT count(*) FROM bench.request_key WHERE recovery_point = 'finished'"
COMPLETED = counter("executed, completed")
REPLAYED = counter("replayed")

BARE = Contender("bare transaction", "bare", PAYMENTS)
BARE_STATEMENT = Contender("bare, one statement", "bare_statement", PAYMENTS)
UNIQUE_KEY = Contender("unique key", "unique_key", KEYED_PAYMENTS)
KEYS_TABLE = Contender("keys table", "keys_table", FINISHED_KEYS)
KEYS_TABLE_PIPELINED = Contender("keys table, pipelined", "keys_table_pipelined", FINISHED_KEYS)
THREE_COMMITS = Contender("keys table, three commits", "keys_table_three_commits", FINISHED_KEYS)
OURS = Contender("ours", "ours", COMPLETED)
PIPELINED = Contender("ours, pipelined", "ours_pipelined", COMPLETED)
EXECUTE = Contender("idem_execute", "ours_execute", COMPLETED)
FIRST_EXECUTIONS = [BARE, BARE_STATEMENT, UNIQUE_KEY, KEYS_TABLE, KEYS_TABLE_PIPELINED, THREE_COMMITS, OURS,
                    PIPELINED, Contender("ours, leased", "ours_leased", COMPLETED),
                    Contender("idem_once", "ours_once", COMPLETED), EXECUTE]
WITHOUT_BUSINESS = Contender("ours, without business", "ours_without_business", COMPLETED)


def course(server, options, name, prepare=None, durable=True):
    return Course(name, options.clients, options.rounds, options.slice,
                  prepare or (lambda contender: server.begin_afresh()), sql_of=lambda contender: server.sql,
                  durable=durable)


def in_words(rows):
    return f"{rows // 10**6} million" if rows >= 10**6 else f"{rows // 1000} thousand"


def compare(server, options, name, contenders, against):
    """With durable commits and without: the comparison that counts, a table of both, and all else."""
    durable, fast = (side_by_side(contenders, course(server, options, f"{name}, {kind}", durable=kind == "durable"))
                     for kind in ("durable", "synchronous_commit off"))
    server.begin_afresh()
    return (durable, fast, durable.table(against, fast),
            {"durable": durable.details(), "synchronous_commit_off": fast.details()})


def first_execution(server, options):
    """New requests, each with the same business work: what is left of the throughput of the transaction
    without protection, and what others leave of it."""
    durable, fast, table, details = compare(server, options, "first_execution", FIRST_EXECUTIONS, BARE.name)
    figures = [durable.figure("first execution", ours.name, against.name, limit)
               for ours, against, limit in ((EXECUTE, BARE, 1.0), (EXECUTE, BARE_STATEMENT, 0.75),
                                            (PIPELINED, BARE, 0.80), (OURS, KEYS_TABLE, 1.1),
                                            (OURS, THREE_COMMITS, 1.9))]
    chart = Chart("first_execution", "First executions per second", list(durable.samples),
                  {"durable commit": durable.throughputs(), "synchronous_commit = off": fast.throughputs()})
    return Findings("first_execution", table, figures, [chart], details)


def once(server, options):
    """The consumer of messages, who keeps no response: idem_once before the business statement, against a
    unique key in the business table itself. As one statement each, and as three round trips each."""
    theirs = Contender("ON CONFLICT, one statement", "unique_key_statement", KEYED_PAYMENTS)
    ours = Contender("idem_once, one statement", "ours_once_statement", PAYMENTS)
    their_transaction = Contender("ON CONFLICT, transaction", "unique_key", KEYED_PAYMENTS)
    our_transaction = Contender("idem_once, transaction", "ours_once_pipelined", COMPLETED)
    durable, _, table, details = compare(server, options, "once",
                                         [theirs, ours, their_transaction, our_transaction], theirs.name)
    return Findings("once", table,
                    [durable.figure("once", ours.name, theirs.name, 0.85),
                     durable.figure("once", our_transaction.name, their_transaction.name, 0.85)], [], details)


KNOWN_RECORDS = 10000


def store_answers(server):
    """The same answers for all: completed records, once more in a plain table of the same shape, and in
    Redis."""
    server.begin_afresh()
    server.insert_records("bench", 1, KNOWN_RECORDS, DAY, 2 * DAY)
    server.vacuum()
    server.sql.rows("DROP TABLE IF EXISTS bench.record_copy;"
                    "CREATE TABLE bench.record_copy (LIKE idempotency.record INCLUDING ALL);"
                    "INSERT INTO bench.record_copy SELECT * FROM idempotency.record")
    server.vacuum("bench.record_copy")
    keys = server.sql.rows("SELECT key FROM idempotency.record")
    redis(lines="".join(f"SET {key} {'x' * 200} EX {DAY}\n" for key, in keys))


def replay(server, options):
    """Requests that were answered before, picked at random."""
    select = Contender("primary-key SELECT", "replay_select")
    ours = Contender("ours", "replay_ours", REPLAYED)
    store_answers(server)
    found = side_by_side([select, ours], course(server, options, "replay", prepare=lambda contender: None))
    chart = Chart("replay", "Replays per second", list(found.samples), {"replays": found.throughputs()})
    server.begin_afresh()
    return Findings("replay", found.table(select.name),
                    [found.figure("replay", ours.name, select.name, 0.90)], [chart], found.details())


def peers(server, options):
    """Redis beside the database, against the same work of ours by the same client program."""
    first = [Contender(*names, by_peers=True) for names in (
        ("bare transaction", "bare", PAYMENTS), ("Redis", "redis", PAYMENTS),
        ("Redis, overlapped", "redis_overlapped", PAYMENTS), ("ours, pipelined", "ours_pipelined", COMPLETED),
        ("ours, one statement", "ours_execute", COMPLETED))]
    durable, _, table, details = compare(server, options, "peers, first executions", first, "Redis")
    repeats = [Contender(*names, by_peers=True) for names in (
        ("Redis", "replay_redis"), ("Redis, pipelined", "replay_redis_pipelined"),
        ("ours", "replay_ours", REPLAYED))]
    store_answers(server)
    replays = side_by_side(repeats, course(server, options, "peers, replays", prepare=lambda contender: None))
    server.begin_afresh()
    table += [[f"replay: {name}", *cells] + [""] * len(cells) for name, *cells in replays.table("Redis")[1:]]
    return Findings("peers", table,
                    [durable.figure("first execution", "ours, one statement", "Redis", 1.3),
                     durable.figure("first execution", "ours, pipelined", "Redis", 1.1),
                     replays.figure("replay", "ours", "Redis", 1.8)], [], {**details, "replays": replays.details()})


CONNECTIONS = 50
REQUESTS_OF_EACH = 21  # one executes; the others are a thousand duplicates, and some
DUPLICATES = (CONNECTIONS - 1) * REQUESTS_OF_EACH
OUTCOMES = "SELECT executed, in_progress, replayed, (SELECT count(*) FROM bench.payment)" \
           " FROM idempotency.stats WHERE scope = 'bench'"


def hot_key(server, options):
    """A thousand duplicates of one running request, on fifty connections, while it runs: one executes, and
    everybody else is told so at once. Nobody is chosen to execute: all ask at the same moment."""
    table = [["round", "told in progress", "p50 ms", "p99 ms"]]
    medians = []
    crowd = Contender("the crowd", "hot_key")
    for number in range(1, options.rounds + 1):
        say(f"hot_key: round {number} of {options.rounds}")
        server.begin_afresh()
        calls = Load(crowd, server.sql, CONNECTIONS, threads=options.clients, transactions=REQUESTS_OF_EACH,
                     **{"define=duplicates": DUPLICATES}).ended()
        answers = [int(count) for count in server.sql.rows(OUTCOMES)[0]]
        if answers != [1, DUPLICATES, REQUESTS_OF_EACH - 1, 1]:
            raise RuntimeError(f"executed, in progress, replayed, payments: {answers}")
        medians.append(calls.quantile(0.5))
        table.append([str(number), str(DUPLICATES), f"{medians[-1]:.3f}", f"{calls.quantile(0.99):.3f}"])
    server.begin_afresh()
    return Findings("hot_key", table, [Figure("hot key: median answer to 1,000 duplicates of a running request",
                                              medians, 5, at_most=True, unit=" ms")], [], table)


REQUESTS = 3000
COUNTERS = ("SELECT pg_current_wal_insert_lsn() - '0/0', wal_records, blks_hit + blks_read, xact_commit"
            " FROM pg_stat_wal, pg_stat_database WHERE datname = current_database()")


def cost_of(server, contender):
    """Of one request: by the server's own counters before and after, with a single client."""
    say(f"resources: {contender.name}")
    server.begin_afresh()
    before = server.sql.rows(COUNTERS)[0]
    Load(contender, server.sql, 1, transactions=REQUESTS).ended()
    # A backend hands in its counters when it ends.
    server.sql.wait_until("NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pgbench')")
    after = server.sql.rows(COUNTERS)[0]
    return [(float(now) - float(then)) / REQUESTS for then, now in zip(before, after)]


def resources(server, options):
    """What a request of each contender costs beside time."""
    server.set("autovacuum", "off")  # its work is counted in the same places
    costs = {contender.name: cost_of(server, contender) + [contender.round_trips()]
             for contender in FIRST_EXECUTIONS}
    server.reset("autovacuum")
    server.begin_afresh()
    table = [["contender", "WAL bytes", "WAL records", "buffers", "commits", "round trips"]]
    for name, (size, *others) in costs.items():
        table.append([name, f"{size:.0f}", *(f"{other:.1f}" for other in others)])
    chart = Chart("wal", "WAL bytes per request", list(costs), {"WAL bytes": [cost[0] for cost in costs.values()]})
    return Findings("resources", table, [], [chart], {"columns": table[0], "costs": costs})


FEW_ROWS = 100 * 1000
BATCH_ROWS = 1000 * 1000
SINCE_CHECKPOINT = 300 * 1000  # what 2,000 requests per second add in half of the default checkpoint_timeout


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
        """Live records, whose ends are spread over the next day, and their keys over the whole index, where
        new ones go, too."""
        present = int(self.sql.number("SELECT count(*) FROM idempotency.record"))
        while present < wanted:
            last = min(present + BATCH_ROWS, wanted)
            say(f"live_rows: filling up to {in_words(last)}")
            self.insert_records("bench", present + 1, last, 60, DAY)
            present = last

    def fill_quickly(self, wanted):
        """As after some time in service, in the middle of a checkpoint's cycle. Beside few records, every
        page has soon been changed since the checkpoint, so that no more images are logged; beside many they
        go on for a while. Images of whole pages would only be thrown away while filling."""
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
    """What first executions cost beside ever more live records: two databases, in one a hundred thousand."""
    levels = [rows for rows in (10**6, 5 * 10**6, 20 * 10**6) if rows < options.live] + [options.live]
    table = [["live records", "per second", "p50 ms", "p99 ms", "ratio", "page images/request"]]
    ratios, details = {in_words(FEW_ROWS): [1.0]}, []
    with Database(server.sql, "idem_bench_few") as few, Database(server.sql, "idem_bench_many") as many:
        for rows in levels:
            found, images = beside(few, many, rows, options)
            for name, database, count in zip((in_words(FEW_ROWS), in_words(rows)), (few, many), images):
                table.append([name, *found.row(database.name, few.name), f"{count:.3f}"])
            ratios[in_words(rows)] = found.ratios(many.name, few.name)
            details.append({"rows": rows, "page_images_per_request": images, "contenders": found.details()})
    most = in_words(levels[-1])
    chart = Chart("live_rows", f"First executions beside many live records, against {in_words(FEW_ROWS)}",
                  list(ratios), {"throughput": [median(values) for values in ratios.values()]}, 0.9)
    return Findings("live_rows", table,
                    [Figure(f"first execution beside {most} live records / {in_words(FEW_ROWS)}", ratios[most], 0.9)],
                    [chart], details)


def busiest_over_last(counts, window):
    """The calls of the busiest `window` seconds on end, divided by those of the last."""
    sums = [sum(counts[max(end - window, 0):end]) for end in range(1, len(counts) + 1)]
    return max(sums) / sums[-1]


def steady_round(server, options, sweeping):
    """From an empty table; what is measured begins when as many records expire as arrive, and sweeper and
    autovacuum have found their rhythm."""
    server.sweep_every(0)
    server.begin_afresh()
    server.sweep_every(1 if sweeping else 0)
    settle = options.ttl + max(options.ttl // 3, 5)
    load = Load(WITHOUT_BUSINESS, server.sql, options.clients, time=settle + options.seconds + 5,
                **{"define=ttl": options.ttl})
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
    found = {"sweeping": sweeping, "per_second": len(calls) / (ended - measured), "p99_ms": calls.quantile(0.99),
             "swept_per_second": swept / (ended - measured), "table_bytes": sizes[-1][0], "live_bytes": live,
             "most_live_bytes": most_live, "bloat": sizes[-1][0] / most_live,
             "index_growth": max(indexes[half:], default=0) / max(indexes[:half])}
    say(f"sweeping {'on' if sweeping else 'off'}: {found['per_second']:.0f} first executions per second")
    return found


def steady_state(server, options):
    """As many records expire as arrive. Rounds with sweeping on and off alternate (on off off on ...). With
    sweeping off the table grows for the whole round: sweeping is compared with the cost of doing nothing.
    Records live for seconds instead of a day, so autovacuum looks around six times in the life of one."""
    server.set("autovacuum_naptime", max(options.ttl // 6, 1))
    rounds = []
    for pair in range(options.pairs):
        say(f"steady_state: pair {pair + 1} of {options.pairs}")
        rounds += [steady_round(server, options, sweeping) for sweeping in (pair % 2 == 0, pair % 2 == 1)]
    server.reset("autovacuum_naptime")
    server.sweep_every(0)
    server.begin_afresh()
    on, off = ([found for found in rounds if found["sweeping"] == wanted] for wanted in (True, False))
    table = [["sweeping", "executed/s", "p99 ms", "swept/s", "table MiB", "live MiB", "most live MiB",
              "table/most live", "index growth"]]
    for r in rounds:
        sizes = [f"{r[name] / 2**20:.1f}" for name in ("table_bytes", "live_bytes", "most_live_bytes")]
        table.append(["on" if r["sweeping"] else "off", f"{r['per_second']:.0f}", f"{r['p99_ms']:.2f}",
                      f"{r['swept_per_second']:.0f}", *sizes, f"{r['bloat']:.2f}", f"{r['index_growth']:.2f}"])
    ratios = [with_it["per_second"] / without["per_second"] for with_it, without in zip(on, off)]
    return Findings("steady_state", table, [
        Figure("throughput, sweeping on / off", ratios, 0.97),
        Figure("table / its live rows at their most", [r["bloat"] for r in on], 1.3, at_most=True),
        Figure("indexes, second half / first half", [r["index_growth"] for r in on], 1.05, at_most=True),
    ], [], rounds)


GIVE_UP_SECONDS = 900
AGE_OF_TRANSACTION = ("SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)"
                      " FROM pg_stat_get_activity(NULL) a WHERE backend_type = 'idempotency sweeper'")


def backlog_round(server, options):
    server.sweep_every(0)
    server.begin_afresh()
    say(f"backlog: inserting {options.rows} expired records")
    # Over an hour, until a minute ago.
    server.insert_records("backlog", 1, options.rows, -61 * 60, -60, by_key=False)
    server.vacuum()
    server.sql.rows("CHECKPOINT")
    # The foreground's own records do not expire while we look.
    load = Load(WITHOUT_BUSINESS, server.sql, options.clients, rate=options.rate,
                time=GIVE_UP_SECONDS + 2 * options.seconds, **{"define=ttl": DAY})
    time.sleep(5)
    say("backlog: before")
    times = [time.time()]
    time.sleep(options.seconds)
    times.append(time.time())
    say("backlog: draining")
    server.sweep_every(1)
    longest = drain(server, options.rows)
    times.append(time.time())
    say(f"backlog: drained in {times[2] - times[1]:.1f} s; after")
    time.sleep(options.seconds)
    times.append(time.time())
    calls = load.stop()
    phases = {name: (start, end, calls.between(start, end))
              for name, start, end in zip(("before", "draining", "after"), times, times[1:])}
    return {"phases": phases, "drain_seconds": times[2] - times[1], "longest_transaction": longest,
            "ratio": phases["draining"][2].quantile(0.99) / phases["before"][2].quantile(0.99)}


def drain(server, rows):
    """Looks over the sweepers' shoulders until they are done: the greatest age of one's transaction, with
    20 ms between looks."""
    done, longest, give_up = server.swept("backlog") + rows, 0, time.time() + GIVE_UP_SECONDS
    while server.swept("backlog") < done:
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
    # So that autovacuum comes while it is drained, for which the default of a minute is too long.
    server.set("autovacuum_naptime", 20)
    rounds = [backlog_round(server, options) for _ in range(options.pairs)]
    server.sweep_every(0)
    server.reset("autovacuum_naptime")
    server.begin_afresh()
    table = [["phase", "seconds", "calls/s", "p50 ms", "p99 ms", "p99.9 ms", "worst second's p99 ms"]]
    table += [phase_row(name, *phase) for found in rounds for name, phase in found["phases"].items()]
    names = list(rounds[0]["phases"])
    chart = Chart("backlog", "p99 of first executions beside a backlog, milliseconds", names,
                  {f"round {number}": [found["phases"][name][2].quantile(0.99) for name in names]
                   for number, found in enumerate(rounds, 1)})
    details = {"table": table, "rounds": [{name: value for name, value in found.items() if name != "phases"}
                                          for found in rounds]}
    return Findings("backlog", table, [
        Figure("p99 of first executions, draining / before", [found["ratio"] for found in rounds], 2, at_most=True),
        Figure("longest transaction of a sweeper", [found["longest_transaction"] for found in rounds], 1,
               at_most=True, largest=True, unit=" s"),
    ], [chart], details)


ALL = {scenario.__name__: scenario for scenario in (
    first_execution, once, replay, peers, hot_key, resources, live_rows, steady_state, backlog)}
