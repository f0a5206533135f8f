import datetime
import glob
import json
import os
import uuid
from contextlib import closing

import pyodbc

from frame import PATH, Driver, pooler, shown

# The driver's file, which needs no registration.
DRIVER = os.environ.get("PSQLODBC") or next(iter(glob.glob("/usr/lib/*/odbc/psqlodbcw.so")))

pyodbc.pooling = False


def connect(options="", port=None, **more):
    server = f"Server={os.environ['PGHOST']};Port={port or os.environ.get('PGPORT', 5432)}"
    user = f"Uid={os.environ.get('PGUSER', 'postgres')};Database={os.environ['PGDATABASE']}"
    return pyodbc.connect(f"Driver={{{DRIVER}}};{server};{user};{options}", **more)


# page: transaction
OPTIONS = "BoolsAsChar=0;Protocol=7.4-0"  # booleans are such, and what fails ends its transaction
BEGIN = """
SELECT c.*, idem_problem(c) AS problem
  FROM idem_begin(?, CAST(? AS jsonb), scope => 'pay', principal => ?) AS c
"""
COMPLETE = """
SELECT idem_complete(?, 201, CAST(? AS bytea), CAST(? AS jsonb), scope => 'pay', principal => ?)
"""


def pay(key, tenant, amount):
    with closing(connect(OPTIONS)) as conn, conn:  # commits at its end, rolls back what raises
        claim = conn.execute(BEGIN, key, json.dumps({"amount": amount}), tenant).fetchone()
        if claim.problem:
            status = json.loads(claim.problem)["status"]
            return status, {"Content-Type": "application/problem+json"}, claim.problem.encode()
        if claim.outcome == "replay":
            return claim.status_code, json.loads(claim.headers), claim.body
        paid = conn.execute("INSERT INTO payment (amount) VALUES (?) RETURNING id", amount).fetchval()
        body, headers = json.dumps({"id": paid}).encode(), {"Content-Type": "application/json"}
        conn.execute(COMPLETE, key, body, json.dumps(headers), tenant)
    return 201, headers, body
# page: end


def run(conn, sql, *values):
    cursor = conn.execute(sql, *values)
    return [dict(zip([column[0] for column in cursor.description], row)) for row in cursor.fetchall()]


def failed(error):
    """The SQLSTATE; pyodbc puts that of its own errors second."""
    codes = [str(one) for one in error.args if len(str(one)) == 5]
    return codes[0] if isinstance(error, pyodbc.Error) else f"`{type(error).__name__}`"


def tries(driver, conn, auto):
    def rolled_back(*statements, on=conn):
        try:
            return [on.execute(sql, *values).fetchval() for sql, *values in statements][-1]
        finally:
            on.rollback()

    begun, completed, lease = driver.asks(rolled_back)

    def each(parameter, value):
        try:
            return [row["idem_once_each"] for row in run(conn, f"SELECT idem_once_each({parameter}, scope => 'keys')", value)]
        finally:
            conn.rollback()

    def other_key(value):
        key = rolled_back(("SELECT key FROM idem_begin(?)", value))
        return f"claims `{key}`, {'another key than' if key != str(value) else 'as does'} `str(x)`"

    def work_fails(options):
        """Work breaks a constraint, the code goes on and completes."""
        with closing(connect(options)) as other:
            other.execute("SELECT outcome FROM idem_begin('fails')").fetchval()
            try:
                other.execute("INSERT INTO payment (amount) VALUES (NULL)")
                raise AssertionError("no constraint was broken")
            except pyodbc.IntegrityError:
                pass
            other.execute("SELECT idem_complete('fails', 201, 'paid')")
            status = other.execute("SELECT status FROM idem_get('fails')").fetchval()
            other.rollback()
            return f"the claim is `{status}`, without its work"

    def boolean(options):
        with closing(connect(options)) as other:
            return f"`{run(other, 'SELECT false AS no')[0]['no']!r}`"

    attempt = driver.attempt
    attempt("key", "`?` with a `str`", lambda: begun("?", "k"))
    attempt("key", "`?` with a `uuid.UUID`", lambda: other_key(uuid.UUID(int=10)))
    array = "ARRAY(SELECT jsonb_array_elements_text(CAST(? AS jsonb)))"
    driver.keys(f"`{array}` with a `str` of JSON", lambda keys: each(array, json.dumps(keys)))
    attempt("keys", "`?` with a `list` of `str`", lambda: each("?", ["b", "a"]))
    attempt("request", "`CAST(? AS jsonb)` with a `str` of JSON", lambda: begun("'k', CAST(? AS jsonb)", '{"a": 1}'))
    attempt("request", "`CAST(? AS jsonb)` with a `dict`", lambda: begun("'k', CAST(? AS jsonb)", {"a": 1}))
    attempt("request", "`CAST(? AS jsonb)` with `bytes`", lambda: begun("'k', CAST(? AS jsonb)", b'{"a": 1}'))
    attempt("request", "`?` of `jsonb`, as in `state ? 'a'`", lambda: begun("?, hold => '{}'::jsonb ? 'a'", "k"))
    attempt("body", "`CAST(? AS bytea)` with `bytes`", lambda: shown(completed("CAST(? AS bytea)", PATH.encode())))
    attempt("body", "`?` with `bytes` of zeros", lambda: completed("?", b"\0"))
    attempt("body", "`?` with `bytes`", lambda: shown(completed("?", PATH.encode())))
    attempt("body", "`?` with a `str`", lambda: shown(completed("?", PATH)))
    attempt("body", "`CAST(? AS bytea)` with a `str`", lambda: shown(completed("CAST(? AS bytea)", PATH)))
    attempt("headers", "`CAST(? AS jsonb)` with a `str` of JSON", lambda: completed("'', CAST(? AS jsonb)", '{"X-A": "1"}') and None)
    attempt("headers", "`CAST(? AS jsonb)` with `{\"X-A\": 1}`", lambda: completed("'', CAST(? AS jsonb)", '{"X-A": 1}'))
    attempt("lease", "`?` with `30`", lambda: lease("?", 30))
    attempt("lease", "`?` with `30000`", lambda: lease("?", 30000))
    attempt("lease", "`? * interval '1 ms'` with `30000`", lambda: lease("? * interval '1 ms'", 30000))
    attempt("lease", "`?` with a `timedelta`", lambda: lease("?", datetime.timedelta(seconds=30)))
    attempt("principal", "`?` with `None`", lambda: begun("'k', principal => ?", None))
    driver.token(lambda token: auto.execute("SELECT idem_extend('token', ?) > now()", token).fetchval())
    driver.autocommit("begin and complete with `autocommit=True`")
    driver.error("`error.args[0]`", lambda: auto.execute("SELECT idem_extend('token', ?)", 1), lambda error: error.args[0])
    attempt("boolean", "`false`, as in `body_omitted` and as what `idem_complete` returns", lambda: boolean(""))
    attempt("boolean", "the same, `BoolsAsChar=0`", lambda: boolean("BoolsAsChar=0"))
    attempt("failing work", "work that fails, then `idem_complete`", lambda: work_fails(""))
    attempt("failing work", "the same, `Protocol=7.4-0`", lambda: work_fails("Protocol=7.4-0"))
    driver.prepared(lambda: auto.execute("SELECT outcome FROM idem_begin(?) -- ten times", "prepared").fetchall())
    driver.pooled("", Pooled)


class Pooled:
    def __init__(self):
        self.conn = connect(port=pooler()["port"])  # the first statement begins a transaction
        self.commit, self.close = self.conn.commit, self.conn.close

    def begin(self):
        pass

    def claim(self, key, scope):
        return self.conn.execute(f"SELECT scope FROM idem_begin(?, scope => '{scope}')", key).fetchval()


def main():
    with closing(connect()) as conn, closing(connect(autocommit=True)) as auto:
        version = f"psqlODBC {conn.getinfo(pyodbc.SQL_DRIVER_VER).split('.')[0]} and pyodbc {pyodbc.version}"
        driver = Driver("odbc", version, lambda sql: run(auto, sql), failed)
        driver.columns()
        driver.check_pay(pay)
        tries(driver, conn, auto)
        driver.print()


main()
