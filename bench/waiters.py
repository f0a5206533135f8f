"""The scenario of a thousand sessions that wait for leased claims: what their wait costs, and how soon
each is told after its claim has ended. It needs a server with as many connections."""

import time
from pathlib import Path

from figures import Figure, Findings
from load import Contender, Load
from server import say

WAITERS = 1000
PAUSE = 0.005  # seconds from one end to the next

LEASES = f"""
    CREATE TABLE IF NOT EXISTS bench.told (key text, at timestamptz);
    TRUNCATE bench.told;
    SELECT count(*) FROM generate_series(0, {WAITERS - 1}) AS number,
           idem_begin('w' || number, scope => 'bench', lease => '1 hour')"""
ASLEEP = f"""(SELECT count(*) = {WAITERS} FROM pg_stat_activity
    WHERE application_name = 'pgbench' AND wait_event_type = 'Extension')"""
# `finished_at` is some time before the commit, so the delays include that of the commit.
END_ALL = f"""DO $$
    DECLARE claim record;
    BEGIN
        FOR claim IN SELECT key, token FROM idempotency.record WHERE scope = 'bench' ORDER BY random() LOOP
            PERFORM idem_complete(claim.key, 201, scope => 'bench', token => claim.token);
            COMMIT;
            PERFORM pg_sleep({PAUSE});
        END LOOP;
    END $$"""
DELAYS = """SELECT extract(epoch FROM told.at - record.finished_at) * 1000
    FROM bench.told JOIN idempotency.record USING (key) ORDER BY 1"""


def processor_seconds(sql):
    """Of all backends that wait, so far. Their ticks would not show work of some microseconds."""
    pids = sql.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'")
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in pids) / 1e9


def share_of_a_core(sql, seconds):
    before, start = processor_seconds(sql), time.monotonic()
    time.sleep(seconds)
    return (processor_seconds(sql) - before) / (time.monotonic() - start)


def waiters(server, options):
    """Each waits for a key of its own, and the claims end one after the other."""
    table = [["round", "cores while all wait", "p50 ms", "p99 ms", "slowest ms"]]
    slowest, idle = [], []
    for number in range(1, options.rounds + 1):
        say(f"waiters: round {number} of {options.rounds}")
        server.begin_afresh()
        server.sql.rows(LEASES)
        load = Load(Contender("waiting", "waiting"), server.sql, WAITERS, threads=2, transactions=1)
        server.sql.wait_until(ASLEEP)
        idle.append(share_of_a_core(server.sql, options.slice * 2))
        server.sql.rows(END_ALL)
        load.ended()
        delays = [float(delay) for (delay,) in server.sql.rows(DELAYS)]
        if len(delays) != WAITERS:
            raise RuntimeError(f"{len(delays)} of {WAITERS} sessions were told")
        slowest.append(delays[WAITERS * 99 // 100])
        table.append([str(number), f"{idle[-1]:.3f}", f"{delays[WAITERS // 2]:.1f}",
                      f"{slowest[-1]:.1f}", f"{delays[-1]:.1f}"])
    server.begin_afresh()
    figures = [Figure(f"p99 from the end of a claim to its waiter, of {WAITERS}", slowest, 50,
                      at_most=True, unit=" ms"),
               Figure(f"cores used by {WAITERS} waiters", idle, 0.1, at_most=True)]
    return Findings("waiters", table, figures, [], table)
