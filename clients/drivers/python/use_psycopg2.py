import datetime
import json
import uuid
from contextlib import closing

import psycopg2
from psycopg2.extras import Json, RealDictCursor

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
    # The connection's own `with` ends the transaction and leaves the connection open.
    with closing(psycopg2.connect("", cursor_factory=RealDictCursor)) as conn, conn, conn.cursor() as cursor:
        cursor.execute(BEGIN, {**names, "request": Json({"amount": amount})})
        claim = cursor.fetchone()
        if claim["problem"]:
            body = json.dumps(claim["problem"]).encode()
            return claim["problem"]["status"], {"Content-Type": "application/problem+json"}, body
        if claim["outcome"] == "replay":
            return claim["status_code"], claim["headers"], bytes(claim["body"])
        cursor.execute("INSERT INTO payment (amount) VALUES (%s) RETURNING id", [amount])
        body, headers = json.dumps(cursor.fetchone()).encode(), {"Content-Type": "application/json"}
        cursor.execute(COMPLETE, {**names, "body": body, "headers": Json(headers)})
    return 201, headers, body
# page: end


def run(conn, sql, *values):
    with conn.cursor(cursor_factory=RealDictCursor) as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def tries(driver, conn, auto):
    def rolled_back(*statements):
        try:
            return [list(run(conn, sql, *values)[0].values())[0] for sql, *values in statements][-1]
        finally:
            conn.rollback()

    begun, completed, lease = driver.asks(rolled_back)

    def each(keys):
        try:
            return [row["idem_once_each"] for row in run(conn, "SELECT idem_once_each(%s, scope => 'keys')", keys)]
        finally:
            conn.rollback()

    body = completed("%s", PATH.encode())
    attempt = driver.attempt
    attempt("key", "`%s` with a `str`", lambda: begun("%s", "k"))
    attempt("key", "`%s` with a `uuid.UUID`", lambda: begun("%s", uuid.uuid4()))
    attempt("key", "`%s` with an `int`", lambda: begun("%s", 7))
    driver.keys("`%s` with a `list` of `str`", each)
    attempt("request", "`%s` with a `str` of JSON", lambda: begun("'k', %s", '{"a": 1}'))
    attempt("request", "`%s` with `Json(x)`", lambda: begun("'k', %s", Json({"a": 1})))
    attempt("request", "`%s` with a `dict`", lambda: begun("'k', %s", {"a": 1}))
    attempt("request", "`%s` with a `list`", lambda: begun("'k', %s", ["a"]))
    attempt("request", "`%s` with `bytes`", lambda: begun("'k', %s", b'{"a": 1}'))
    attempt("request", "`%s::jsonb` with `bytes`", lambda: begun("'k', %s::jsonb", b'{"a": 1}'))
    attempt("body", "`%s` with `bytes`", lambda: shown(completed("%s", PATH.encode())))
    attempt("body", "`%s` with a `str`", lambda: shown(completed("%s", PATH)))
    attempt("body", "`%s::bytea` with a `str`", lambda: shown(completed("%s::bytea", PATH)))
    attempt("body", "`claim[\"body\"] == b\"...\"` of what was stored so", lambda: f"`{body == PATH.encode()}`")
    attempt("body", "`str(claim[\"body\"])`", lambda: f"`{str(body)[:10]} ...`")
    attempt("body", "`json.loads(claim[\"body\"])`", lambda: f"`{type(json.loads(body)).__name__}`")
    attempt("body", "`bytes(claim[\"body\"])`", lambda: shown(bytes(body)))
    attempt("headers", "`%s` with `Json({\"X-A\": \"1\"})`", lambda: completed("'', %s", Json({"X-A": "1"})) and None)
    attempt("headers", "`%s` with `Json({\"X-A\": 1})`", lambda: completed("'', %s", Json({"X-A": 1})))
    attempt("lease", "`%s` with `30`", lambda: lease("%s", 30))
    attempt("lease", "`%s` with `\"30000\"`", lambda: lease("%s", "30000"))
    attempt("lease", "`%s` with a `timedelta`", lambda: lease("%s", datetime.timedelta(seconds=30)))
    attempt("principal", "`%s` with `None`", lambda: begun("'k', principal => %s", None))
    driver.token(lambda token: run(auto, "SELECT idem_extend('token', %s) > now() AS ok", token)[0]["ok"])
    driver.autocommit("begin and complete on a connection with `autocommit = True`")
    driver.error("`error.pgcode`", lambda: run(auto, "SELECT idem_extend('token', %s)", 1), lambda error: error.pgcode)
    driver.prepared(lambda: run(auto, "SELECT outcome FROM idem_begin(%s) -- ten times", "prepared"))
    driver.pooled("", Pooled)


class Pooled:
    def __init__(self):
        self.conn = psycopg2.connect("", **pooler())  # the first statement begins a transaction
        self.commit, self.close = self.conn.commit, self.conn.close

    def begin(self):
        pass

    def claim(self, key, scope):
        return run(self.conn, f"SELECT scope FROM idem_begin(%s, scope => '{scope}')", key)[0]["scope"]


def main():
    with closing(psycopg2.connect("")) as conn, closing(psycopg2.connect("")) as auto:
        auto.autocommit = True
        version = psycopg2.__version__.split()[0]
        driver = Driver("psycopg2", f"psycopg2 {version}", lambda sql: run(auto, sql), failure)
        driver.columns()
        driver.check_pay(pay)
        tries(driver, conn, auto)
        driver.print()


main()
