"""What clients/conformance/README.md wants to try, on FastAPI. Services look like the README."""

import asyncio
import base64
import json
import os
import signal
from contextlib import asynccontextmanager, suppress

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from psycopg.errors import DivisionByZero, SerializationFailure
from psycopg_pool import AsyncConnectionPool

from idempotency_postgres import NothingHappened
from idempotency_postgres.fastapi import Idempotency, bearer
from idempotency_postgres.psycopg import database
from idempotency_postgres.route import claim as current_claim

INFO = f"application_name={os.environ.get('PGAPPNAME', 'example')} connect_timeout=5"
# Behind PgBouncer a prepared statement is another session's.
PREPARES = {"prepare_threshold": None} if os.environ.get("POOLED") else {}
pool = AsyncConnectionPool(INFO, min_size=2, max_size=10, open=False, reconnect_timeout=1, kwargs=PREPARES)
# Of the handler's own: gates, effects of leased routes, hooks. A connection that has died is not handed out.
others = AsyncConnectionPool(
    INFO, min_size=2, max_size=40, open=False, reconnect_timeout=1, check=AsyncConnectionPool.check_connection,
    kwargs={"autocommit": True, **PREPARES},
)  # fmt: skip


def hook(name):
    async def tell(event):
        async with others.connection() as connection:
            await connection.execute(
                "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES (%s, %s, %s, %s, %s)",
                (name, event.scope, event.key, event.attempt, event.outcome),
            )

    return tell


# BENCH: for bench/clients, without the suite's hooks and with the route /bare.
BENCH = "BENCH" in os.environ
HOOKS = {} if BENCH else {
    "database_timeout": 2, "on_execute": hook("execute"), "on_replay": hook("replay"), "on_refusal": hook("refusal"),
    "on_lease_lost": hook("lease_lost"),
}  # fmt: skip
keys = Idempotency(database(pool), principal=bearer, **HOOKS)

runs = {}  # of handlers that are to fail, by key


async def insert(connection, claim, note):
    await connection.execute("INSERT INTO effect (principal, key, note) VALUES (%s, %s, %s)", (claim.principal, claim.key or "", note))


async def insert_aside(claim, note):
    async with others.connection() as connection:
        await insert(connection, claim, note)


async def effect(claim, note):
    if claim.kind == "transactional":
        await insert(claim.client, claim, note)
    else:
        await claim.step("effect", lambda: insert_aside(claim, note))


async def gate(number):
    """The suite decides how long it works: it is deaf to cancellation here."""
    task = asyncio.ensure_future(_gate(number))
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            pass


async def _gate(number):
    async with others.connection() as connection:
        await connection.execute("SELECT pg_advisory_lock_shared(%s)", (number,))
        await connection.execute("SELECT pg_advisory_unlock_shared(%s)", (number,))


async def hang(claim):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await insert_aside(claim, "lost")


async def by_cursor(connection):
    async with connection.cursor() as cursor:
        await cursor.execute("SELECT 1/0")


async def many(connection):
    async with connection.cursor() as cursor:
        await cursor.executemany("SELECT 1/%s", [(0,), (0,)])


async def copied(connection):
    async with connection.cursor() as cursor, cursor.copy("COPY (SELECT 1/0) TO STDOUT") as copy:
        await copy.read()


async def streamed(connection):
    async with connection.cursor() as cursor:
        async for _ in cursor.stream("SELECT 1/0"):
            pass


async def in_pipeline(connection):
    async with connection.pipeline():
        await connection.execute("SELECT 1/0")


HIDDEN = {
    "execute": lambda connection: connection.execute("SELECT 1/0"),
    "values": lambda connection: connection.execute("SELECT 1/%s", (0,)),
    "prepared": lambda connection: connection.execute("SELECT 1/%s", (0,), prepare=True),
    "cursor": by_cursor, "executemany": many, "copy": copied, "stream": streamed, "pipeline": in_pipeline,
}  # fmt: skip


async def commit_in_pipeline(connection):
    async with connection.pipeline():
        await connection.execute("COMMIT")


COMMITS = {
    "sql": lambda connection: connection.execute("COMMIT"),
    "driver": lambda connection: connection.commit(),
    "several": lambda connection: connection.execute("COMMIT; SELECT 1"),
    "pipeline": commit_in_pipeline,
}
stray = set()


async def late(claim, note):
    await asyncio.sleep(0.3)
    with suppress(Exception):
        await insert(claim.client, claim, note)
    async with others.connection() as connection:
        await insert(connection, claim, "tried")


class Stranger(Exception):
    """Of a payment gateway, whose codes have five characters."""

    sqlstate = "40004"


async def handler(request: Request) -> Response:
    claim = current_claim()
    body = await request.body()
    kind = request.headers.get("content-type", "application/octet-stream")
    order = json.loads(body) if body and kind == "application/json" else None
    if not isinstance(order, dict):
        await effect(claim, "raw")
        return Response(body, 200, media_type=kind)
    if "gate" in order:
        await gate(order["gate"])
    if "effect" in order:
        await effect(claim, order["effect"])
    if "unknown" in order:
        await claim.unknown(*order["unknown"])
    if "commit" in order:
        await COMMITS[order["commit"]](claim.client)
    if hidden := order.get("hide_error"):
        with suppress(DivisionByZero):
            await HIDDEN["execute" if hidden is True else hidden](claim.client)
    if order.get("serialization_failures"):
        runs[claim.key] = runs.get(claim.key, 0) + 1
        if runs[claim.key] <= order["serialization_failures"]:
            await claim.client.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
            raise SerializationFailure
    if order.get("hang"):
        await hang(claim)
    if order.get("never"):
        await asyncio.Event().wait()
    if "idle" in order:
        await claim.client.execute(f"SET LOCAL idle_in_transaction_session_timeout = {int(order['idle'])}")
        await asyncio.sleep(order["idle"] / 1000 + 1)
    if "late" in order:
        stray.add(asyncio.create_task(late(claim, order["late"])))
    if "stranger" in order:
        raise Stranger("Connection closed")
    if "raise" in order:
        raise HTTPException(order["raise"], "raised")
    if order.get("nothing_happened"):
        raise NothingHappened("nothing happened")
    if order.get("throw"):
        raise RuntimeError("thrown by the handler")
    if order.get("exit"):
        os._exit(3)
    content = base64.b64decode(order.get("body", "")) * order.get("repeat", 1)
    if request.url.path == "/streamed":
        response: Response = StreamingResponse(pieces(content))
    else:
        response = Response(content)
    response.status_code = order.get("status", 201)
    for name, value in order.get("headers", ()):
        response.headers.append(name, value)
    return response


async def pieces(content):
    for at in range(0, len(content), 100):
        yield content[at : at + 100]


@asynccontextmanager
async def pools(app):
    async with pool, others:
        yield


app = FastAPI(lifespan=pools)
app.router.route_class = keys.route_class


@app.get("/ways")
async def ways():
    return {"hide_error": list(HIDDEN), "commit": list(COMMITS), "waits": {"execute": 3, "replay": 1, "leased": 3}}


@app.get("/health")
async def health():
    return "well"


async def bare(request: Request) -> Response:
    """The work of /transactional without the client."""
    order = await request.json()
    async with pool.connection() as connection:
        await connection.execute("INSERT INTO effect (principal, key, note) VALUES ('bench', '', %s)", (order["effect"],))
    return Response(b"", 201)


if BENCH:
    app.post("/bare")(bare)


@app.exception_handler(Exception)
async def failed(request, error):
    return JSONResponse({"title": "Internal server error", "status": 500}, 500, media_type="application/problem+json")


CONFIGURED = {
    "statuses": {"in_progress": 425, "mismatch": 400, "unavailable": 500}, "key_header": "X-Request-Key",
    "replay_header": "X-Replay", "echo_key": True, "exclude": ["ts"], "keep": lambda status: True, "ttl": 1,
}  # fmt: skip
for path, options in {
    "/transactional": {},
    "/generate": {"missing_key": "generate"},
    "/derive": {"missing_key": "derive", "window": 2},
    "/pass": {"missing_key": "pass"},
    "/configured": CONFIGURED,
    "/small": {"max_request_bytes": 1000, "max_answer_bytes": 1000},
    "/omit": {"max_answer_bytes": 1000, "omit_large_answers": True},
    "/unprotected": {"unprotected_without_database": True},
    "/streamed": {},
    "/judged": {"verdict": lambda answer: dict(answer.headers).get("x-verdict")},
    "/impatient": {"handler_timeout": 1},
    "/patient": {"wait": 4},
}.items():
    app.post(path)(keys.transactional(**options)(handler))
for path in ("/leased", "/uncertain"):
    app.post(path)(keys.leased(lease=2)(handler))
app.post("/judged_leased")(keys.leased(lease=2, verdict=lambda answer: dict(answer.headers).get("x-verdict"))(handler))


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("ready", flush=True)


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if __name__ == "__main__":
    config = uvicorn.Config(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning", timeout_graceful_shutdown=1)
    asyncio.run(Server(config).serve())
