"""The scenario of a Citus cluster, whose nodes IDEM_NODES names: what is left of the throughput of a
transaction without protection, through the node that has the tenant's shard, through one that has
not, and through the coordinator; and the processor time that a request takes on each node."""

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from figures import Findings
from load import Contender, Course, side_by_side
from server import Sql

TABLES = Path(__file__).with_name("cluster.sql")
PAYMENTS = "SELECT count(*) FROM bench.tenant_payment"
# Payments with their completed record, on any node.
COMPLETED = PAYMENTS + (" p JOIN idempotency.record r ON r.principal = p.tenant AND r.key = p.id"
                        " AND r.status = 'c'")
WORK = [("bare transaction", "cluster_bare", PAYMENTS),
        ("empty calls, pipelined", "cluster_empty_calls", PAYMENTS),
        ("ours", "cluster_ours", COMPLETED),
        ("ours, pipelined", "cluster_ours_pipelined", COMPLETED),
        ("bare function", "cluster_bare_function", PAYMENTS),
        ("ours, in a function", "cluster_ours_function", COMPLETED)]
AGAINST = {"empty calls, pipelined": "bare transaction", "ours": "bare transaction",
           "ours, pipelined": "bare transaction", "ours, in a function": "bare function"}
# The goals, each a ratio of two measurements.
FIGURES = [("ours, pipelined", "empty calls, pipelined"),
           *((name, AGAINST[name]) for name in ("ours, pipelined", "ours, in a function"))]


def nodes():
    """Folders of servers, each with its socket: the coordinator and two workers."""
    return os.environ.get("IDEM_NODES", "").split()


def process(pid):
    """The fields of /proc/PID/stat behind the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def ticks_of(postmaster, stats):
    """Of a server: its own, those of processes that ended, and those of each that is there. `stats`
    are of all processes, by pid."""
    own = sum(map(int, stats[postmaster][11:15]))
    return own + sum(int(stat[11]) + int(stat[12]) for stat in stats.values()
                     if stat[1] == postmaster)


def processor_seconds(node):
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stats[folder.name] = process(folder.name)
        except OSError:  # it has ended
            continue
    postmaster = Path(node, "data", "postmaster.pid").read_text().split()[0]
    return ticks_of(postmaster, stats) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """As its operator sees it."""

    def __init__(self):
        self.nodes = nodes()
        self.sessions = [Sql("postgres", node) for node in self.nodes]
        self.coordinator = self.sessions[0]
        self.coordinator.rows(f"CREATE SCHEMA bench; {TABLES.read_text()}")
        self.cost = {}  # of a contender: for each round, microseconds per request of each node
        self.before = []

    def tenant_on(self, node):
        return self.coordinator.text(
            "SELECT name FROM (SELECT 'tenant ' || i AS name FROM generate_series(1, 100) i) n"
            " WHERE get_shard_id_for_distribution_column('bench.tenant_payment', name) IN"
            f" (SELECT shardid FROM citus_shards WHERE nodename = '{node}') ORDER BY name LIMIT 1")

    def begin_afresh(self, _):
        self.coordinator.rows("TRUNCATE idempotency.record, bench.tenant_payment")
        for session in self.sessions:
            session.rows("CHECKPOINT")
        self.before = [processor_seconds(node) for node in self.nodes]

    def note_cost(self, contender):
        """The time of a session is the postmaster's when it has ended."""
        for session in self.sessions:
            session.wait_until("NOT EXISTS (SELECT FROM pg_stat_activity"
                               " WHERE application_name = 'pgbench')")
        requests = self.coordinator.number(PAYMENTS)
        self.cost.setdefault(contender.name, []).append(
            [1e6 * (processor_seconds(node) - before) / requests
             for node, before in zip(self.nodes, self.before)])


@dataclass(frozen=True)
class Way:
    name: str
    asked: int  # the number of the node
    tenants: int  # of the one that has the tenant's shard


WAYS = [Way("the tenant's node", 1, 1), Way("another node", 1, 2), Way("the coordinator", 0, 1)]


def contenders_of(cluster):
    tenants = {way.tenants: cluster.tenant_on(cluster.nodes[way.tenants]) for way in WAYS}
    return [Contender(f"{name}, {way.name}", script, counted, database="postgres",
                      host=cluster.nodes[way.asked], tenant=tenants[way.tenants])
            for way in WAYS for name, script, counted in WORK]


def row(found, cluster, way, name):
    full = f"{name}, {way.name}"
    against = AGAINST.get(name)
    ratio = median(found.ratios(full, f"{against}, {way.name}")) if against else 1
    costs = min(cluster.cost[full], key=sum)  # other work of the machine can only add to it
    elsewhere = f"{costs[way.tenants]:.0f}" if way.asked != way.tenants else ""
    return [full, *(f"{found.median(full, what):.{digits}f}" for what, digits in
                    (("per_second", 0), ("p50", 3), ("p99", 3))),
            f"{ratio:.2f}", f"{costs[way.asked]:.0f}", elsewhere]


def cluster(_, options):
    """New requests of a tenant, as transactions and as a distributed function, through each node."""
    there = Cluster()
    found = side_by_side(contenders_of(there), Course(
        "cluster", options.clients, options.rounds, options.slice, there.begin_afresh,
        there.note_cost, sql_of=lambda contender: there.coordinator))
    table = [["contender, asking", "per second", "p50 ms", "p99 ms", "of bare",
              "CPU us, node asked", "CPU us, tenant's node"]]
    table += [row(found, there, way, name) for way in WAYS for name, *_ in WORK]
    figures = [found.figure("cluster", f"{name}, {way.name}", f"{against}, {way.name}", 0.75)
               for way in WAYS for name, against in FIGURES]
    for session in there.sessions:
        session.close()
    return Findings("cluster", table, figures, [],
                    {"rates": found.details(), "microseconds": there.cost})
