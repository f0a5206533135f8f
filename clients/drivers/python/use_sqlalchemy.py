import asyncio
import datetime
import json
import uuid

import sqlalchemy
from sqlalchemy import bindparam, create_engine, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import create_async_engine

from frame import PATH, Driver, failure, pooler, shown

engine = create_engine("postgresql+psycopg://")

# page: transaction
BEGIN = text("""
SELECT c.*, idem_problem(c) AS problem
  FROM idem_begin(:key, CAST(:request AS jsonb), scope => 'pay', principal => :tenant) AS c
""")
COMPLETE = text("""
SELECT idem_complete(:key, 201, CAST(:body AS bytea), CAST(:headers AS jsonb), scope => 'pay', principal => :tenant)
""")
PAY = text("INSERT INTO payment (amount) VALUES (:amount) RETURNING id")


def pay(key, tenant, amount):
    names = {"key": key, "tenant": tenant}
    with engine.begin() as conn:  # commits at its end; engine.connect() would roll back
        claim = conn.execute(BEGIN, {**names, "request": json.dumps({"amount": amount})}).one()
        if claim.problem:
            body = json.dumps(claim.problem).encode()
            return claim.problem["status"], {"Content-Type": "application/problem+json"}, body
        if claim.outcome == "replay":
            return claim.status_code, claim.headers, claim.body
        paid = conn.execute(PAY, {"amount": amount}).scalar_one()
        body, headers = json.dumps({"id": paid}).encode(), {"Content-Type": "application/json"}
        conn.execute(COMPLETE, {**names, "body": body, "headers": json.dumps(headers)})
    return 201, headers, body
# page: end


def tries(driver, conn, auto):
    def rolled_back(*statements):
        try:
            return [conn.execute(text(sql) if isinstance(sql, str) else sql, values).scalar() for sql, values in statements][-1]
        finally:
            conn.rollback()

    def begun(sql, **values):
        rolled_back((f"SELECT outcome FROM idem_begin({sql})", values))

    def completed(sql, **values):
        complete = (f"SELECT idem_complete('k', 200, {sql})", values)
        return rolled_back(("SELECT idem_begin('k')", {}), complete, ("SELECT body FROM idem_get('k')", {}))

    def lease(sql, value):
        return f"{rolled_back((driver.lease(sql), {'l': value}))} seconds"

    def each(keys):
        try:
            return list(conn.execute(text("SELECT idem_once_each(:keys, scope => 'keys')"), {"keys": keys}).scalars())
        finally:
            conn.rollback()

    def typed(value):
        """The type of JSON that the server sees."""
        kind = rolled_back((text("SELECT jsonb_typeof(:r)").bindparams(bindparam("r", type_=JSONB)), {"r": value}))
        return f"a JSON {kind}"

    def forgotten():
        """The result of a block of engine.connect() that begins, completes and does not commit."""
        with engine.connect() as one:
            one.execute(text("SELECT idem_begin('forgotten')"))
            one.execute(text("SELECT idem_complete('forgotten', 200)"))
        left = rolled_back(("SELECT count(*) FROM idempotency.record WHERE key = 'forgotten'", {}))
        return f"rolled back, without an error: {left} records"

    attempt = driver.attempt
    attempt("key", "`:key` with a `str`", lambda: begun(":k", k="k"))
    attempt("key", "`:key` with a `uuid.UUID`", lambda: begun(":k", k=uuid.uuid4()))
    driver.keys("`:keys` with a `list` of `str`", each)
    attempt("request", "`:r::jsonb`", lambda: begun("'k', :r::jsonb", r='{"a": 1}'))
    attempt("request", "`CAST(:r AS jsonb)` with a `str` of JSON", lambda: begun("'k', CAST(:r AS jsonb)", r='{"a": 1}'))
    attempt("request", "`CAST(:r AS jsonb)` with a `dict`", lambda: begun("'k', CAST(:r AS jsonb)", r={"a": 1}))
    attempt("request", "`CAST(:r AS jsonb)` with `bytes`", lambda: begun("'k', CAST(:r AS jsonb)", r=b'{"a": 1}'))
    attempt("request", "`bindparam(\"r\", type_=JSONB)` with a `dict`", lambda: typed({"a": 1}))
    attempt("request", "`bindparam(\"r\", type_=JSONB)` with a `str` of JSON", lambda: typed('{"a": 1}'))
    attempt("request", "`bindparam(\"r\", type_=JSONB)` with `None`", lambda: typed(None))
    attempt("request", "JSON in the text, `'{\"a\":1}'`", lambda: begun("'k', '{\"a\":1}'"))
    attempt("body", "`CAST(:b AS bytea)` with `bytes`", lambda: shown(completed("CAST(:b AS bytea)", b=PATH.encode())))
    attempt("body", "`:b` with a `str`", lambda: shown(completed(":b", b=PATH)))
    attempt("body", "`CAST(:b AS bytea)` with a `str`", lambda: shown(completed("CAST(:b AS bytea)", b=PATH)))
    attempt("headers", "`CAST(:h AS jsonb)` with a `str` of JSON", lambda: completed("'', CAST(:h AS jsonb)", h='{"X-A": "1"}') and None)
    attempt("headers", "`CAST(:h AS jsonb)` with `{\"X-A\": 1}`", lambda: completed("'', CAST(:h AS jsonb)", h='{"X-A": 1}'))
    attempt("lease", "`:l` with `30`", lambda: lease(":l", 30))
    attempt("lease", "`:l` with `\"30000\"`", lambda: lease(":l", "30000"))
    attempt("lease", "`:l` with a `timedelta`", lambda: lease(":l", datetime.timedelta(seconds=30)))
    attempt("principal", "`:tenant` with `None`", lambda: begun("'k', principal => :p", p=None))
    attempt("commit", "begin and complete below `engine.connect()`", forgotten)
    attempt("psycopg2", "`claim.body`, with `postgresql+psycopg2`", lambda: f"`{type(with_psycopg2(PATH.encode())).__name__}`")
    attempt("asyncpg", "`CAST(:b AS bytea)` with `bytes`, with `postgresql+asyncpg`", lambda: with_asyncpg("CAST(:b AS bytea)"))
    attempt("asyncpg", "`:b` with `bytes`, with `postgresql+asyncpg`", lambda: with_asyncpg(":b"))
    extend = text("SELECT idem_extend('token', :t) > now()")
    driver.token(lambda token: auto.execute(extend, {"t": token}).scalar())
    driver.autocommit("begin and complete with `isolation_level=\"AUTOCOMMIT\"`")
    driver.error("`error.orig.sqlstate`", lambda: auto.execute(extend, {"t": 1}), lambda error: error.orig.sqlstate)
    ten = text("SELECT outcome FROM idem_begin(:k) -- ten times")
    driver.prepared(lambda: auto.execute(ten, {"k": "prepared"}))
    driver.pooled("", Pooled)
    driver.pooled("`connect_args={\"prepare_threshold\": None}`", lambda: Pooled(prepare_threshold=None))


STORE = "SELECT idem_complete('k', 200, {}) FROM idem_begin('k')"
STORED = text("SELECT body FROM idem_get('k')")


def with_psycopg2(body):
    with create_engine("postgresql+psycopg2://").connect() as conn:
        conn.execute(text(STORE.format("CAST(:b AS bytea)")), {"b": body})
        return conn.execute(STORED).scalar()


def with_asyncpg(parameter):
    async def work():
        other = create_async_engine("postgresql+asyncpg://")
        try:
            async with other.connect() as conn:
                await conn.execute(text(STORE.format(parameter)), {"b": PATH.encode()})
                return shown((await conn.execute(STORED)).scalar())
        finally:
            await other.dispose()

    return asyncio.run(work())


class Pooled:
    def __init__(self, **options):
        self.engine = create_engine("postgresql+psycopg://", connect_args={**pooler(), **options})
        self.conn = self.engine.connect()  # the first statement begins a transaction
        self.commit = self.conn.commit

    def begin(self):
        pass

    def claim(self, key, scope):
        return self.conn.execute(text(f"SELECT scope FROM idem_begin(:k, scope => '{scope}')"), {"k": key}).scalar()

    def close(self):
        self.conn.close()
        self.engine.dispose()


def main():
    with engine.connect() as conn, engine.connect().execution_options(isolation_level="AUTOCOMMIT") as auto:

        def rows(sql):
            return auto.exec_driver_sql(sql).mappings().all()

        driver = Driver("sqlalchemy", f"SQLAlchemy {sqlalchemy.__version__}", rows, failure)
        driver.columns()
        driver.check_pay(pay)
        tries(driver, conn, auto)
        driver.print()


main()
