import asyncio
import datetime
import json
import uuid

import asyncpg

from frame import PATH, Driver, failure, pooler, shown

# page: transaction
BEGIN = """
SELECT c.*, idem_problem(c) AS problem
  FROM idem_begin($1, $2, scope => 'pay', principal => $3) AS c
"""
COMPLETE = "SELECT idem_complete($1, 201, $2::bytea, $3, scope => 'pay', principal => $4)"


async def pay(key, tenant, amount):
    conn = await asyncpg.connect()
    try:
        async with conn.transaction():
            claim = await conn.fetchrow(BEGIN, key, json.dumps({"amount": amount}), tenant)
            if claim["problem"]:
                status = json.loads(claim["problem"])["status"]
                return status, {"Content-Type": "application/problem+json"}, claim["problem"].encode()
            if claim["outcome"] == "replay":
                return claim["status_code"], json.loads(claim["headers"]), claim["body"]
            paid = await conn.fetchval("INSERT INTO payment (amount) VALUES ($1) RETURNING id", amount)
            body, headers = json.dumps({"id": paid}).encode(), {"Content-Type": "application/json"}
            await conn.fetchval(COMPLETE, key, body, json.dumps(headers), tenant)
    finally:
        await conn.close()
    return 201, headers, body
# page: end


def tries(driver, conn, wait):
    async def rolled_back(*statements):
        transaction = conn.transaction()
        await transaction.start()
        try:
            return [await conn.fetchval(sql, *values) for sql, *values in statements][-1]
        finally:
            await transaction.rollback()

    begun, completed, lease = driver.asks(lambda *statements: wait(rolled_back(*statements)))

    async def each(keys):
        transaction = conn.transaction()
        await transaction.start()
        try:
            return [row["idem_once_each"] for row in await conn.fetch("SELECT idem_once_each($1, scope => 'keys')", keys)]
        finally:
            await transaction.rollback()

    def with_codec(value):
        """The type of JSON that the server sees, with a codec set."""

        async def ask():
            other = await asyncpg.connect()
            try:
                await other.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
                return await other.fetchval("SELECT jsonb_typeof($1)", value)
            finally:
                await other.close()

        return f"a JSON {wait(ask())}"

    attempt = driver.attempt
    attempt("key", "`$1` with a `str`", lambda: begun("$1", "k"))
    attempt("key", "`$1` with a `uuid.UUID`", lambda: begun("$1", uuid.uuid4()))
    attempt("key", "`$1::text` with a `uuid.UUID`", lambda: begun("$1::text", uuid.uuid4()))
    attempt("key", "`$1::uuid::text` with a `uuid.UUID`", lambda: begun("$1::uuid::text", uuid.uuid4()))
    driver.keys("`$1` with a `list` of `str`", lambda keys: wait(each(keys)))
    attempt("request", "`$2` with a `str` of JSON", lambda: begun("'k', $1", '{"a": 1}'))
    attempt("request", "`$2` with a `dict`", lambda: begun("'k', $1", {"a": 1}))
    attempt("request", "`$2` with `bytes`", lambda: begun("'k', $1", b'{"a": 1}'))
    attempt("request", "`$2` with a `dict`, after `set_type_codec`", lambda: with_codec({"a": 1}))
    attempt("request", "`$2` with a `str` of JSON, after `set_type_codec`", lambda: with_codec('{"a": 1}'))
    attempt("body", "`$3` with `bytes`", lambda: completed("$1", PATH.encode()))
    attempt("body", "`$3::bytea` with `bytes`", lambda: shown(completed("$1::bytea", PATH.encode())))
    attempt("body", "`$3` with a `str`", lambda: shown(completed("$1", PATH)))
    attempt("body", "`$3::bytea` with a `str`", lambda: completed("$1::bytea", PATH))
    attempt("headers", "`$4` with a `str` of JSON", lambda: completed("'', $1", '{"X-A": "1"}') and None)
    attempt("headers", "`$4` with a `dict`", lambda: completed("'', $1", {"X-A": "1"}))
    attempt("headers", "`$4` with `{\"X-A\": 1}`", lambda: completed("'', $1", '{"X-A": 1}'))
    attempt("lease", "`$5` with `30`", lambda: lease("$1", 30))
    attempt("lease", "`$5` with `\"30 s\"`", lambda: lease("$1", "30 s"))
    attempt("lease", "`$5` with a `timedelta`", lambda: lease("$1", datetime.timedelta(seconds=30)))
    attempt("lease", "`make_interval(secs => $5)` with `30`", lambda: lease("make_interval(secs => $1)", 30))
    attempt("status", "`$2` with `\"201\"`", lambda: wait(conn.fetchval("SELECT idem_complete('k', $1)", "201")))
    attempt("principal", "`$1` with `None`", lambda: begun("'k', principal => $1", None))
    driver.token(lambda token: wait(conn.fetchval("SELECT idem_extend('token', $1) > now()", token)))
    attempt("token", "`str(token)`", lambda: wait(conn.fetchval("SELECT idem_extend('token', $1)", "1")))
    driver.autocommit("begin and complete outside of `conn.transaction()`")
    driver.error("`error.sqlstate`", lambda: wait(conn.fetchval("SELECT idem_extend('token', $1)", 1)), lambda error: error.sqlstate)
    driver.prepared(lambda: wait(conn.fetchval("SELECT outcome FROM idem_begin($1) -- ten times", "prepared")))
    driver.pooled("", lambda: Pooled(wait))
    driver.pooled("`statement_cache_size=0`", lambda: Pooled(wait, statement_cache_size=0))


class Pooled:
    def __init__(self, wait, **options):
        self.wait, self.conn = wait, wait(asyncpg.connect(**pooler(), **options))
        self.close = self.conn.terminate  # the server connection may lack what it would clean up

    def begin(self):
        self.transaction = self.conn.transaction()
        self.wait(self.transaction.start())

    def claim(self, key, scope):
        return self.wait(self.conn.fetchval(f"SELECT scope FROM idem_begin($1, scope => '{scope}')", key))

    def commit(self):
        self.wait(self.transaction.commit())


def failed(error):
    """An error of asyncpg itself has an SQLSTATE, too, although the server was not asked."""
    return failure(error) if getattr(error, "severity", None) else f"`{type(error).__name__}`"


def main():
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect())
        driver = Driver("asyncpg", f"asyncpg {asyncpg.__version__}", lambda sql: runner.run(conn.fetch(sql)), failed)
        driver.columns()
        driver.check_pay(lambda *arguments: runner.run(pay(*arguments)))
        tries(driver, conn, runner.run)
        driver.print()
        runner.run(conn.close())


main()
