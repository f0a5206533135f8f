"""Scenarios about a request: what a first execution and a repeat cost, of ours and of others. Each
leaves the server as it found it, but for the records, which are gone."""

from figures import Chart, Figure, Findings
from load import KNOWN_RECORDS, Contender, Course, Load, side_by_side
from server import DAY, redis, say

def counter(names):
    return (f"SELECT coalesce(min(least({names})), 0) FROM idempotency.stats"
            " WHERE NOT total AND scope = 'bench'")


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
KEYS_TABLE_STATEMENT = Contender("keys table, one statement", "keys_table_statement", FINISHED_KEYS)
THREE_COMMITS = Contender("keys table, three commits", "keys_table_three_commits", FINISHED_KEYS)
OURS = Contender("ours", "ours", COMPLETED)
PIPELINED = Contender("ours, pipelined", "ours_pipelined", COMPLETED)
EXECUTE = Contender("idem_execute", "ours_execute", COMPLETED)
WITH = Contender("ours, one WITH", "ours_with", COMPLETED)
LEASED = Contender("ours, leased", "ours_leased", COMPLETED)
ONCE = Contender("idem_once", "ours_once", COMPLETED)
FIRST_EXECUTIONS = [BARE, BARE_STATEMENT, UNIQUE_KEY, KEYS_TABLE, KEYS_TABLE_PIPELINED,
                    KEYS_TABLE_STATEMENT, THREE_COMMITS, OURS, PIPELINED, LEASED, ONCE, EXECUTE, WITH]


def turns(server, options, name, contenders, durable=True, prepare=None):
    """Side by side, each from empty tables unless something else is prepared."""
    return side_by_side(contenders, Course(
        name, options.clients, options.rounds, options.slice,
        prepare or (lambda contender: server.begin_afresh()),
        sql_of=lambda contender: server.sql, durable=durable))


def compare(server, options, name, contenders, against):
    """With durable commits and without: the comparison that counts, a table of both, and all
    else."""
    durable = turns(server, options, f"{name}, durable", contenders)
    fast = turns(server, options, f"{name}, synchronous_commit off", contenders, durable=False)
    server.begin_afresh()
    return (durable, fast, durable.table(against, fast),
            {"durable": durable.details(), "synchronous_commit_off": fast.details()})


def first_execution(server, options):
    """New requests, each with the same business work: what is left of the throughput of the
    transaction without protection, and what others leave of it."""
    durable, fast, table, details = compare(server, options, "first_execution",
                                            FIRST_EXECUTIONS, BARE.name)
    wanted = [(EXECUTE, BARE, 1.0), (EXECUTE, BARE_STATEMENT, 0.75), (WITH, BARE, 1.0), (PIPELINED, BARE, 0.75),
              (EXECUTE, KEYS_TABLE_STATEMENT, 1.0),
              (OURS, KEYS_TABLE, 1.0), (OURS, THREE_COMMITS, 1.9)]
    figures = [durable.figure("first execution", ours.name, against.name, limit)
               for ours, against, limit in wanted]
    chart = Chart("first_execution", "First executions per second", list(durable.samples),
                  {"durable commit": durable.throughputs(),
                   "synchronous_commit = off": fast.throughputs()})
    return Findings("first_execution", table, figures, [chart], details)


def once(server, options):
    """The consumer of messages, who keeps no response: idem_once before the business statement,
    against a unique key in the business table itself. As one statement each, and as three round
    trips each."""
    theirs = Contender("ON CONFLICT, one statement", "unique_key_statement", KEYED_PAYMENTS)
    ours = Contender("idem_once, one statement", "ours_once_statement", PAYMENTS)
    their_transaction = Contender("ON CONFLICT, transaction", "unique_key", KEYED_PAYMENTS)
    our_transaction = Contender("idem_once, transaction", "ours_once_pipelined", COMPLETED)
    all_four = [theirs, ours, their_transaction, our_transaction]
    durable, _, table, details = compare(server, options, "once", all_four, theirs.name)
    figures = [durable.figure("once", ours.name, theirs.name, 0.85),
               durable.figure("once", our_transaction.name, their_transaction.name, 0.85)]
    return Findings("once", table, figures, [], details)


def once_each(server, options):
    """The consumer of a queue: a thousand keys in one call, against a call and a commit for each key."""
    singly = Contender("idem_once for each key", "ours_once_statement", PAYMENTS)
    together = Contender("idem_once_each, 1,000 keys", "ours_once_each", PAYMENTS)
    durable, _, table, details = compare(server, options, "once_each", [singly, together], singly.name)
    keys_a_second = [1000 * ratio for ratio in durable.ratios(together.name, singly.name)]
    figure = Figure("once_each: keys per second in one call / singly", keys_a_second, 5)
    return Findings("once_each", table, [figure], [], details)


def store_answers(server):
    """The same answers for all: completed records, once more in a plain table of the same shape,
    and in Redis."""
    server.begin_afresh()
    server.insert_records("bench", 1, KNOWN_RECORDS, DAY, 2 * DAY)
    server.vacuum()
    server.sql.rows("DROP TABLE IF EXISTS bench.record_copy;"
                    "CREATE TABLE bench.record_copy (LIKE idempotency.record INCLUDING ALL);"
                    "INSERT INTO bench.record_copy SELECT * FROM idempotency.record")
    server.vacuum("bench.record_copy")
    keys = server.sql.rows("SELECT key FROM idempotency.record")
    redis(lines="".join(f"SET {key} {'x' * 200} EX {DAY}\n" for key, in keys))


def nothing(_):
    """To be prepared: all find the same answers."""


def replay(server, options):
    """Requests that were answered before, picked at random."""
    select = Contender("primary-key SELECT", "replay_select")
    ours = Contender("ours", "replay_ours", REPLAYED)
    store_answers(server)
    found = turns(server, options, "replay", [select, ours], prepare=nothing)
    server.begin_afresh()
    figure = found.figure("replay", ours.name, select.name, 0.90)
    chart = Chart("replay", "Replays per second", list(found.samples),
                  {"replays": found.throughputs()})
    return Findings("replay", found.table(select.name), [figure], [chart], found.details())


def peers(server, options):
    """Redis beside the database, against the same work of ours by the same client program."""
    first = [
        Contender("bare transaction", "bare", PAYMENTS, by_peers=True),
        Contender("Redis", "redis", PAYMENTS, by_peers=True),
        Contender("Redis, overlapped", "redis_overlapped", PAYMENTS, by_peers=True),
        Contender("Redis over TCP", "redis", PAYMENTS, by_peers=True, redis="REDIS_PORT"),
        Contender("ours", "ours", COMPLETED, by_peers=True),
        Contender("ours, pipelined", "ours_pipelined", COMPLETED, by_peers=True),
        Contender("ours, one statement", "ours_execute", COMPLETED, by_peers=True),
    ]
    again = [
        Contender("Redis", "replay_redis", by_peers=True),
        Contender("Redis, pipelined", "replay_redis_pipelined", by_peers=True),
        Contender("Redis over TCP", "replay_redis", by_peers=True, redis="REDIS_PORT"),
        Contender("ours", "replay_ours", REPLAYED, by_peers=True),
    ]
    durable, _, table, details = compare(server, options, "peers, first executions", first, "Redis")
    store_answers(server)
    replays = turns(server, options, "peers, replays", again, prepare=nothing)
    server.begin_afresh()
    for name, *cells in replays.table("Redis")[1:]:
        table.append([f"replay: {name}", *cells] + [""] * len(cells))
    details["replays"] = replays.details()
    figures = [durable.figure("first execution", "ours, one statement", "Redis", 1.3),
               durable.figure("first execution", "ours, pipelined", "Redis", 1.1),
               replays.figure("replay", "ours", "Redis", 1.8)]
    return Findings("peers", table, figures, [], details)


def both(names, script, counted):
    """The same work, in the clear and encrypted."""
    return [Contender(name, script, counted) for name in names]


def encryption(server, options):
    """What a policy with "encrypt" leaves of new requests and of replays. Request, headers and a body
    of 200 bytes are given in both."""
    clear, sealed = names = ("in the clear", "encrypted")
    server.make_key_file()

    def keep(contender):
        server.begin_afresh()
        server.sql.rows(f"SELECT idem_policy_set('bench', encrypt => {contender.name == sealed}, replace => true, reason => 'bench')")

    def keep_answers(contender):
        keep(contender)
        server.sql.rows(f"SELECT bench.complete_payments({KNOWN_RECORDS})")
        server.vacuum()

    executions = [turns(server, options, f"encryption, {name}", both(names, "ours_kept", COMPLETED),
                        durable, prepare=keep)
                  for name, durable in (("durable", True), ("synchronous_commit off", False))]
    replays = turns(server, options, "encryption, replays", both(names, "replay_kept", REPLAYED),
                    prepare=keep_answers)
    server.sql.rows("SELECT idem_policy_drop('bench', 'bench')")
    server.reset("idempotency.encryption_key_file")
    server.begin_afresh()
    table = executions[0].table(clear, executions[1])
    for name, *cells in replays.table(clear)[1:]:
        table.append([f"replay: {name}", *cells] + [""] * (len(table[0]) - 1 - len(cells)))
    figures = [executions[0].figure("first execution", sealed, clear, 0.75),
               replays.figure("replay", sealed, clear, 0.60)]
    return Findings("encryption", table, figures, [],
                    {"durable": executions[0].details(), "replays": replays.details(),
                     "synchronous_commit_off": executions[1].details()})


CONNECTIONS = 50
REQUESTS_OF_EACH = 21  # one executes; the others are a thousand duplicates, and some
DUPLICATES = (CONNECTIONS - 1) * REQUESTS_OF_EACH
OUTCOMES = "SELECT executed, in_progress, replayed, (SELECT count(*) FROM bench.payment)" \
           " FROM idempotency.stats WHERE scope = 'bench'"


def hot_key(server, options):
    """A thousand duplicates of one running request, on fifty connections, while it runs: one
    executes, and everybody else is told so at once. Nobody is chosen to execute: all ask at the
    same moment."""
    table = [["round", "in_progress", "p50 ms", "p99 ms"]]
    medians = []
    crowd = Contender("the crowd", "hot_key")
    for number in range(1, options.rounds + 1):
        say(f"hot_key: round {number} of {options.rounds}")
        server.begin_afresh()
        calls = Load(crowd, server.sql, CONNECTIONS, threads=options.clients,
                     transactions=REQUESTS_OF_EACH, define=f"duplicates={DUPLICATES}").ended()
        answers = [int(count) for count in server.sql.rows(OUTCOMES)[0]]
        if answers != [1, DUPLICATES, REQUESTS_OF_EACH - 1, 1]:
            raise RuntimeError(f"executed, in progress, replayed, payments: {answers}")
        medians.append(calls.quantile(0.5))
        table.append([str(number), str(DUPLICATES), f"{medians[-1]:.3f}",
                      f"{calls.quantile(0.99):.3f}"])
    server.begin_afresh()
    figure = Figure("hot key: median answer to 1,000 duplicates of a running request", medians, 5,
                    at_most=True, unit=" ms")
    return Findings("hot_key", table, [figure], [], table)


REQUESTS = 3000
COUNTERS = ("SELECT pg_current_wal_insert_lsn() - '0/0', wal_records, blks_hit + blks_read,"
            " xact_commit FROM pg_stat_wal, pg_stat_database WHERE datname = current_database()")


def cost_of(server, contender):
    """Of one request: by the server's own counters before and after, with a single client."""
    say(f"resources: {contender.name}")
    server.begin_afresh()
    before = server.sql.rows(COUNTERS)[0]
    Load(contender, server.sql, 1, transactions=REQUESTS).ended()
    # A backend reports its counters when it ends.
    server.sql.wait_until("NOT EXISTS (SELECT FROM pg_stat_activity"
                          " WHERE application_name = 'pgbench')")
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
    chart = Chart("wal", "WAL bytes per request", list(costs),
                  {"WAL bytes": [cost[0] for cost in costs.values()]})
    return Findings("resources", table, [], [chart], {"columns": table[0], "costs": costs})
