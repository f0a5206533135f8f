"""The scenario of two thousand connections, of which a pooler makes forty. It leaves the server as it
found it, but for the records, which are gone."""

import os
import resource
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from figures import Figure, Findings
from load import Contender, Course, Load, side_by_side
from server import as_server, say
from single_requests import BARE, EXECUTE, OURS, OUTCOMES, PIPELINED, REPLAYED, store_answers

CONNECTIONS = 2000
POOL = 40
# Poolers before pgbouncer 1.21 can't carry a prepared statement from one server connection to
# another.
LOAD = {"protocol": "extended", "threads": 2}


class Pooler:
    """pgbouncer in transaction mode before the server, by the server's user, for as long as a block
    takes. `host` is for libpq."""

    def __init__(self, sql):
        program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
        if not program:
            raise RuntimeError("pgbouncer is not installed")
        self.host = sql.text("SHOW data_directory") + ".pooler"
        host, port, user = (os.environ[name] for name in ("PGHOST", "PGPORT", "PGUSER"))
        settings = ["[databases]", f"* = host={host} port={port} user={user}",
                    "[pgbouncer]", "listen_addr =", f"listen_port = {port}",
                    f"unix_socket_dir = {self.host}", "auth_type = any", "pool_mode = transaction",
                    f"default_pool_size = {POOL}", f"max_client_conn = {CONNECTIONS}", ""]
        as_server("mkdir", self.host)
        as_server("tee", f"{self.host}/ini", given="\n".join(settings))
        # A file for each connection and side; it inherits ours.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.process = as_server(program, f"{self.host}/ini", wait=False)

    def __enter__(self):
        while not Path(self.host, f".s.PGSQL.{os.environ['PGPORT']}").exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"pgbouncer ended with {self.process.returncode}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.host)


def compared(server, options, name, clients, contenders):
    def prepare(contender):
        if contender.counted == REPLAYED:
            store_answers(server)
        else:
            server.begin_afresh()

    return side_by_side(contenders, Course(
        f"connections, {name}", clients, options.rounds, options.slice, prepare,
        sql_of=lambda contender: server.sql, options=LOAD))


def crowd(server, host):
    """All of them ask for one new key at the same moment: milliseconds of the median and the last
    hundredth. The one that executes keeps its server connection until all others were told."""
    server.begin_afresh()
    calls = Load(Contender("the crowd", "hot_key", host=host), server.sql, CONNECTIONS,
                 transactions=1, define=f"duplicates={CONNECTIONS - 1}", **LOAD).ended()
    answers = [int(count) for count in server.sql.rows(OUTCOMES)[0]]
    if answers != [1, CONNECTIONS - 1, 0, 1]:
        raise RuntimeError(f"executed, in progress, replayed, payments: {answers}")
    return calls


def connections(server, options):
    """Two thousand connections through pgbouncer against as many as it makes of them, without it; and
    two thousand duplicates."""
    contenders = [BARE, OURS, PIPELINED, EXECUTE, Contender("replay", "replay_ours", REPLAYED)]
    direct = compared(server, options, f"{POOL} direct", POOL, contenders)
    with Pooler(server.sql) as pooler:
        pooled = compared(server, options, f"{CONNECTIONS} pooled", CONNECTIONS,
                          [replace(contender, host=pooler.host) for contender in contenders])
        say(f"connections: {CONNECTIONS} duplicates")
        duplicates = crowd(server, pooler.host)
    server.begin_afresh()
    table = direct.table(BARE.name)
    table[0] += [f"pooled {column}" for column in table[0][1:]]
    for line in table[1:]:
        line += pooled.row(line[0], BARE.name)
    figure = Figure(f"{PIPELINED.name} / {BARE.name}: {CONNECTIONS} pooled connections / {POOL} direct",
                    [ours / theirs for ours, theirs in zip(
                        pooled.ratios(PIPELINED.name, BARE.name),
                        direct.ratios(PIPELINED.name, BARE.name))], 0.9)
    slowest = Figure(f"slowest answer to {CONNECTIONS} duplicates", [max(duplicates.millis) / 1000],
                     30, at_most=True, unit=" s")
    return Findings("connections", table, [figure, slowest], [],
                    {"direct": direct.details(), "pooled": pooled.details(),
                     "duplicates_p50_ms": duplicates.quantile(0.5),
                     "duplicates_p99_ms": duplicates.quantile(0.99)})
