"""Scenarios that take long or many: an hour of steady work, and thousands of connections. Each leaves
the server as it found it, but for the records, which are gone."""

import time

from figures import Curves, Figure, Findings
from load import Load
from many_records import WITHOUT_BUSINESS
from server import say

RATE = 1000  # first executions per second
LIVES = 6  # how many generations of records come and go
SAMPLES = 360
CHECKPOINTS = 300  # seconds between them, as by default

STATE = ("SELECT pg_relation_size('idempotency.record'), pg_indexes_size('idempotency.record'),"
         " coalesce((SELECT n_dead_tup FROM pg_stat_user_tables"
         " WHERE relid = 'idempotency.record'::regclass), 0),"
         " (SELECT count(*) FROM idempotency.record WHERE retained_until <= clock_timestamp())")
MIB = 2**20


def watch(server, seconds):
    """The sizes while time goes by: minutes, MiB of the table, MiB of its indexes, dead rows, and
    rows that have expired and are still there."""
    begun, seen = time.time(), []
    for number in range(SAMPLES + 1):
        time.sleep(max(begun + seconds * number / SAMPLES - time.time(), 0))
        table, indexes, dead, overdue = map(float, server.sql.rows(STATE)[0])
        seen.append(((time.time() - begun) / 60, table / MIB, indexes / MIB, dead, overdue))
        if number % (SAMPLES // 12) == 0:
            say(f"hour: {seen[-1][0]:.0f} minutes, table {seen[-1][1]:.0f} MiB")
    return seen


def hour(server, options):
    """Steady work with the sweeper, autovacuum and checkpoints as they are by default. What a
    record's life leaves behind is to be used again by the next: after the second generation nothing
    grows any more."""
    server.begin_afresh()
    server.set("checkpoint_timeout", CHECKPOINTS)
    server.sweep_every(60)
    seconds = 60 * options.minutes
    ttl = max(seconds // LIVES, 1)
    load = Load(WITHOUT_BUSINESS, server.sql, options.clients, rate=RATE, time=seconds + 5,
                define=f"ttl={ttl}")
    begun = time.time()
    seen = watch(server, seconds)
    live = server.live_copy_size() / MIB
    calls = load.ended()
    server.sweep_every(0)
    server.reset("checkpoint_timeout")
    server.begin_afresh()

    minutes, table_mib, index_mib, dead, overdue = zip(*seen)
    generations = [calls.between(begun + seconds * n / LIVES, begun + seconds * (n + 1) / LIVES)
                   for n in range(LIVES)]
    share = SAMPLES // LIVES
    table = [["generation", "calls/s", "p50 ms", "p99 ms", "p99.9 ms", "table MiB", "indexes MiB",
              "dead rows", "overdue rows"]]
    for number, of_it in enumerate(generations):
        span = slice(number * share, (number + 1) * share + 1)
        table.append([str(number + 1), f"{len(of_it) / (seconds / LIVES):.0f}",
                      *(f"{of_it.quantile(q):.2f}" for q in (0.5, 0.99, 0.999)),
                      *(f"{max(values[span]):.0f}" for values in (table_mib, index_mib, dead,
                                                                  overdue))])
    # The third generation is the first in which records expire as fast as they arrive throughout.
    third, last = slice(2 * share, 3 * share + 1), slice(-share, None)
    figures = [
        Figure("hour: the table's size, last generation / third",
               [max(table_mib[last]) / max(table_mib[third])], 1.05, at_most=True),
        Figure("hour: the indexes' size, last generation / third",
               [max(index_mib[last]) / max(index_mib[third])], 1.05, at_most=True),
        Figure("hour: p99, last generation / third",
               [generations[-1].quantile(0.99) / generations[2].quantile(0.99)], 1.2, at_most=True),
    ]
    per_minute = [of_it.quantile(0.99) for of_it in
                  (calls.between(begun + 60 * n, begun + 60 * (n + 1))
                   for n in range(options.minutes)) if len(of_it)]
    charts = [
        Curves("hour", f"{RATE} first executions per second, records live {ttl} s", "MiB", minutes,
               {"table": table_mib, "indexes": index_mib,
                "fresh copy of the live rows": [live] * len(minutes)}),
        Curves("hour_p99", "p99 of each minute", "ms", range(1, len(per_minute) + 1),
               {"p99": per_minute}),
    ]
    return Findings("hour", table, figures, charts,
                    {"rate": RATE, "ttl": ttl, "live_copy_mib": live, "seen": seen,
                     "p99_of_each_minute": per_minute})
