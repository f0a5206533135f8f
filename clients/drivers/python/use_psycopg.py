import datetime
import json
import uuid

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Json, Jsonb

from frame import PATH, Driver, failure, pooler, shown

# page: transaction
BEGIN = """
SELECT c.*, idem_problem(c) AS problem
  FROM idem_begin(%(key)s, %(request)s, scope => 'pay', principal => %(tenant)s) AS c
"""
COMPLETE = """
SELECT idem_complete(%(key)s, 201, %(body)s, %(headers)s, scope => 'pay', principal => %(tenant)s)
"""


def pay(key, tenant, amount):
    names = {"key": key, "tenant": tenant}
    with psycopg.connect(row_factory=dict_row) as conn:  # commits at its end, rolls back what raises
        claim = conn.execute(BEGIN, {**names, "request": Jsonb({"amount": amount})}).fetchone()
        if claim["problem"]:
            body = json.dumps(claim["problem"]).encode()
            return claim["problem"]["status"], {"Content-Type": "application/problem+json"}, body
        if claim["outcome"] == "replay":
            return claim["status_code"], claim["headers"], claim["body"]
        paid = conn.execute("INSERT INTO payment (amount) VALUES (%s) RETURNING id", [amount]).fetchone()
        body, headers = json.dumps(paid).encode(), {"Content-Type": "application/json"}
        conn.execute(COMPLETE, {**names, "body": body, "headers": Jsonb(headers)})
    return 201, headers, body
# page: end


def tries(driver, conn, auto):
    def one(sql, *values):
        with conn.transaction(force_rollback=True):
            return conn.execute(sql, values).fetchone()[0]

    def begun(sql, *values):
        one(f"SELECT outcome FROM idem_begin({sql})", *values)

    def completed(sql, *values):
        with conn.transaction(force_rollback=True):
            conn.execute("SELECT idem_begin('k')")
            conn.execute(f"SELECT idem_complete('k', 200, {sql})", values)
            return conn.execute("SELECT body FROM idem_get('k')").fetchone()[0]

    def lease(sql, value):
        return f"{one(driver.lease(sql), value)} seconds"

    def other_payload(request):
        """The outcome of the second of two different requests."""
        begin = "SELECT outcome FROM idem_begin('k', %s)"
        with conn.transaction(force_rollback=True):
            conn.execute(begin, [request])
            conn.execute("SELECT idem_complete('k', 201)")
            return f"`{conn.execute(begin, [Jsonb({'a': 2})]).fetchone()[0]}` for another payload"

    def each(keys):
        with conn.transaction(force_rollback=True):
            return [new for (new,) in conn.execute("SELECT idem_once_each(%s, scope => 'keys')", [keys])]

    attempt = driver.attempt
    attempt("key", "`%s` with a `str`", lambda: begun("%s", "k"))
    attempt("key", "`%s` with a `uuid.UUID`", lambda: begun("%s", uuid.uuid4()))
    attempt("key", "`%s` with an `int`", lambda: begun("%s", 7))
    driver.keys("`%s` with a `list` of `str`", each)
    attempt("request", "`%s` with a `str` of JSON", lambda: begun("'k', %s", '{"a": 1}'))
    attempt("request", "`%s` with `Jsonb(x)`", lambda: begun("'k', %s", Jsonb({"a": 1})))
    attempt("request", "`%s` with `Json(x)`", lambda: begun("'k', %s", Json({"a": 1})))
    attempt("request", "`%s` with a `dict`", lambda: begun("'k', %s", {"a": 1}))
    attempt("request", "`%s` with a `list`", lambda: begun("'k', %s", ["a"]))
    attempt("request", "`%s` with `bytes`", lambda: begun("'k', %s", b'{"a": 1}'))
    attempt("request", "`%s::jsonb` with `bytes`", lambda: begun("'k', %s::jsonb", b'{"a": 1}'))
    attempt("request", "`%s` with `None`", lambda: other_payload(None))
    attempt("request", "`%s` with `Jsonb(None)`", lambda: other_payload(Jsonb(None)))
    attempt("body", "`%s` with `bytes`", lambda: shown(completed("%s", PATH.encode())))
    attempt("body", "`%s` with a `str`", lambda: shown(completed("%s", PATH)))
    attempt("body", "`%s::bytea` with a `str`", lambda: shown(completed("%s::bytea", PATH)))
    attempt("body", "`%s` with `Jsonb(x)`", lambda: shown(completed("%s", Jsonb(json.loads(PATH)))))
    attempt("headers", "`%s` with `Jsonb({\"X-A\": \"1\"})`", lambda: completed("'', %s", Jsonb({"X-A": "1"})) and None)
    attempt("headers", "`%s` with `Jsonb({\"X-A\": 1})`", lambda: completed("'', %s", Jsonb({"X-A": 1})))
    attempt("lease", "`%s` with `30`", lambda: lease("%s", 30))
    attempt("lease", "`%s` with `\"30000\"`", lambda: lease("%s", "30000"))
    attempt("lease", "`%s` with a `timedelta`", lambda: lease("%s", datetime.timedelta(seconds=30)))
    attempt("lease", "`make_interval(secs => %s)` with `30`", lambda: lease("make_interval(secs => %s)", 30))
    attempt("principal", "`%s` with `None`", lambda: begun("'k', principal => %s", None))
    driver.token(lambda token: auto("SELECT idem_extend('token', %s) > now()", [token]).fetchone()[0])
    driver.autocommit("begin and complete on a connection with `autocommit=True`")
    driver.error("`error.sqlstate`", lambda: auto("SELECT idem_extend('token', %s)", [1]), lambda error: error.sqlstate)
    driver.prepared(lambda: auto("SELECT outcome FROM idem_begin(%s) -- ten times", ["prepared"]))
    driver.pooled("", Pooled)
    driver.pooled("`prepare_threshold=None`", lambda: Pooled(prepare_threshold=None))


class Pooled:
    def __init__(self, **options):
        self.conn = psycopg.connect(**pooler(), **options)  # the first statement begins a transaction
        self.commit, self.close = self.conn.commit, self.conn.close

    def begin(self):
        pass

    def claim(self, key, scope):
        return self.conn.execute(f"SELECT scope FROM idem_begin(%s, scope => '{scope}')", [key]).fetchone()[0]


def main():
    with psycopg.connect() as conn, psycopg.connect(autocommit=True) as auto:

        def rows(sql):
            return auto.cursor(row_factory=dict_row).execute(sql).fetchall()

        driver = Driver("psycopg", f"psycopg {psycopg.__version__}", rows, failure)
        driver.columns()
        driver.check_pay(pay)
        tries(driver, conn, auto.execute)
        driver.print()


main()
