"""What the README says is run as it stands there, but for the name of the database."""

import asyncio
import pathlib
import re
import sys
import types

import httpx
import pytest

from .test_frameworks import BODY, check, client, headers

README = (pathlib.Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = {
    heading.split(",")[0]: code
    for heading, code in re.findall(r"^## ([^\n]+)\n(?:(?!^## )[^\n]*\n)*?\n?```python\n(.*?)```", README, re.M | re.S)
}


def run(heading, dsn, module=None, **names):
    module = module or types.ModuleType("service")
    vars(module).update(names)
    sys.modules["service"] = module
    exec(compile(BLOCKS[heading].replace("dbname=shop", f"dbname={dsn}").replace("///shop", f"///{dsn}"), heading, "exec", dont_inherit=True), vars(module))
    return module


@pytest.fixture
def payments(sql, key):
    """The README's table; `check` counts in another."""
    sql("CREATE TABLE IF NOT EXISTS payment (account text, amount integer)")
    sql("DELETE FROM payment")

    def look(text, *values):
        return sql("SELECT count(*) FROM payment WHERE account = 'tenant'")

    return look


class Gateway:
    calls = 0

    async def charge(self, amount, key):
        self.calls += 1
        return {"id": f"ch_{amount}"}

    async def refund(self, amount, key):
        raise {1: ConnectionRefusedError(), 2: TimeoutError("re_1")}[amount]


async def test_fastapi(dsn, key, payments):
    gateway = Gateway()
    service = run("FastAPI", dsn, gateway=gateway)
    async with service.lifespan(service.app), client(service.app, headers=headers(key)) as http:
        await check(lambda body: http.post("/payments", json=body), key, payments)
        answers = [await http.post("/transfers", json=BODY) for _ in range(2)]
        assert [(a.status_code, a.json()) for a in answers] == [(201, {"charge": "ch_5"})] * 2 and gateway.calls == 1


async def test_leased_claims(dsn, key, sql):
    service = run("Leased claims", dsn, run("FastAPI", dsn, gateway=Gateway()))
    async with service.lifespan(service.app), client(service.app) as http:
        for amount, status, told in ((1, 500, ("retryable", "the gateway is down", None)), (2, 202, ("unknown", "no answer in time", "re_1"))):
            answer = await http.post("/refunds", json={"amount": amount}, headers=headers(f"{key}-{amount}"))
            assert answer.status_code == status
            assert sql("SELECT status, error, reference FROM idempotency.records WHERE key = %s", f"{key}-{amount}") == [told]
        repeat = await http.post("/refunds", json={"amount": 2}, headers=headers(f"{key}-2"))
        assert repeat.json()["type"].endswith("/unknown")


async def test_starlette(dsn, key, payments):
    before = run("FastAPI", dsn, gateway=Gateway())
    service = run("Starlette", dsn, database=before.database, pool=before.pool, lifespan=before.lifespan)
    async with before.lifespan(service.app), client(service.app, headers=headers(key)) as http:
        await check(lambda body: http.post("/payments", json=body), key, payments)


async def test_flask(dsn, key, payments):
    service = run("Flask", dsn)
    http = service.app.test_client()

    async def call(body):
        answer = http.post("/payments", json=body, headers=headers(key))
        return httpx.Response(answer.status_code, headers=list(answer.headers), content=answer.data)

    await check(call, key, payments)


async def test_sqlalchemy(dsn, key, sql):
    sql("DROP TABLE IF EXISTS payment")
    sql("CREATE TABLE payment (id serial PRIMARY KEY, account text, amount integer)")
    service = run("SQLAlchemy", dsn)
    async with client(service.app) as http:
        for name, amount, status, replayed, count in [
            ("a", 5000, 409, None, 0), ("a", 5000, 409, "true", 0), ("b", 5, 201, None, 1), ("b", 5, 201, "true", 1),
        ]:  # fmt: skip
            answer = await http.post("/payments", json={"amount": amount}, headers=headers(key + name))
            assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (status, replayed), answer.text
            assert sql("SELECT count(*) FROM payment") == [(count,)]
    await service.engine.dispose()
    sql("DROP TABLE payment")


def test_the_others_are_python():
    assert {"FastAPI", "Starlette", "Flask", "Django", "Leased claims", "Options", "Functions and messages"} <= set(BLOCKS)
    for name, code in BLOCKS.items():
        compile(code, name, "exec")


async def test_worker(dsn, sql, payments):
    service = run("Worker", dsn)
    sql("SELECT idem_policy_set('payments', store_request => true)")
    for key, amount in (("small", 5), ("large", 5000)):
        sql("SELECT idem_begin(%s, %s::jsonb, scope => 'payments', principal => 'tenant', lease => '1 ms')", key, f'{{"amount": {amount}}}')
    try:
        working = asyncio.ensure_future(asyncio.to_thread(service.payments.run))
        for _ in range(5000):
            if sql("SELECT count(*) FROM idempotency.records WHERE scope = 'payments' AND status = 'completed'") == [(2,)]:
                break
            await asyncio.sleep(0.02)
    finally:
        service.payments.stop()
        await working
        service.pool.close()
    assert sql("SELECT key, status_code FROM idempotency.records WHERE scope = 'payments' ORDER BY key") == [("large", 422), ("small", None)]
    assert sql("SELECT amount FROM payment") == [(5,)]
