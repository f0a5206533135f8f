"""The scenario of the edition without C: on a server of its own without the module, which IDEM_MANAGED
names, against the module, a table of keys and Redis."""

import os

from figures import Findings
from load import KNOWN_RECORDS, Contender, Course, side_by_side
from server import DAY, Server
from single_requests import (COMPLETED, EXECUTE, KEYS_TABLE, KEYS_TABLE_STATEMENT, ONCE, OURS, PAYMENTS,
                             PIPELINED, REPLAYED, nothing, store_answers)

HOST = os.environ.get("IDEM_MANAGED", "")
RECORDS = "SELECT count(*) FROM idempotency.record WHERE status = 'c'"  # there are no statistics


def here(contender, counted=RECORDS):
    """The same work, by the edition without C."""
    return Contender(f"without C: {contender.name}", contender.script, counted, contender.by_peers,
                     contender.redis, host=HOST)


REDIS = Contender("Redis", "redis", PAYMENTS, by_peers=True)
BESIDE_REDIS = Contender("ours, beside Redis", "ours", COMPLETED, by_peers=True)
REPLAY = Contender("replay", "replay_ours", REPLAYED)
REPEAT = Contender("replay, beside Redis", "replay_ours", REPLAYED, by_peers=True)
REPLAY_REDIS = Contender("replay by Redis", "replay_redis", by_peers=True)
OF_MODULE = [OURS, PIPELINED, ONCE, EXECUTE, BESIDE_REDIS]
EXECUTIONS = [KEYS_TABLE, KEYS_TABLE_STATEMENT, REDIS, *OF_MODULE, *map(here, OF_MODULE)]
REPLAYS = [REPLAY_REDIS, REPLAY, REPEAT, here(REPLAY, ""), here(REPEAT, "")]


class Managed(Server):
    """Its owner is no superuser, and installed it."""

    def __init__(self):
        super().__init__(host=HOST)

    def empty(self):
        self.sql.rows("TRUNCATE idempotency.record, bench.payment")


def managed(server, options):
    """New requests and repeats. What is compared has the same client program."""
    servers = {HOST: Managed(), "": server}

    def turns(name, contenders, prepare, durable=True):
        return side_by_side(contenders, Course(
            f"managed, {name}", options.clients, options.rounds, options.slice, prepare,
            sql_of=lambda contender: servers[contender.host].sql, durable=durable))

    def begin_afresh(contender):
        servers[contender.host].begin_afresh()

    durable = turns("durable", EXECUTIONS, begin_afresh)
    fast = turns("synchronous_commit off", EXECUTIONS, begin_afresh, durable=False)
    store_answers(server)
    servers[HOST].insert_records("bench", 1, KNOWN_RECORDS, DAY, 2 * DAY)
    servers[HOST].vacuum()
    replays = turns("replays", REPLAYS, nothing)
    server.begin_afresh()
    table = durable.table(OURS.name, fast)
    for line in replays.table(REPLAY.name)[1:]:
        table.append(line + [""] * (len(table[0]) - len(line)))
    against = [(durable, OURS, OURS, 0.5), (durable, PIPELINED, PIPELINED, 0.5), (durable, EXECUTE, EXECUTE, 0.5),
               (durable, ONCE, ONCE, 0.5), (durable, OURS, KEYS_TABLE, 0.5), (durable, ONCE, KEYS_TABLE, 0.5),
               (durable, EXECUTE, KEYS_TABLE_STATEMENT, 0.5), (durable, BESIDE_REDIS, REDIS, 0.5),
               (replays, REPLAY, REPLAY, 0.55), (replays, REPEAT, REPLAY_REDIS, 0.55)]
    figures = [found.figure("managed", here(ours).name, other.name, limit)
               for found, ours, other, limit in against]
    return Findings("managed", table, figures, [],
                    {"durable": durable.details(), "synchronous_commit_off": fast.details(),
                     "replays": replays.details()})
