"""What clients/conformance/README.md wants of a worker: in threads, or, with the variable WORKER_ASYNC, in a loop."""

import asyncio
import os
import signal

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from idempotency_postgres import Answer, NothingHappened, Settings, worker
from idempotency_postgres.psycopg import database

INFO = f"application_name={os.environ.get('PGAPPNAME', 'example')} connect_timeout=5"
SIZE = int(os.environ["WORKER_SIZE"])
POOL = {"min_size": 1, "max_size": 2 * SIZE + 2, "reconnect_timeout": 1}
OPTIONS = {
    "size": SIZE, "lease": int(os.environ["WORKER_LEASE_MS"]) / 1000, "poll": int(os.environ["WORKER_POLL_MS"]) / 1000,
    "channel": os.environ["WORKER_CHANNEL"] or None, "mode": os.environ["WORKER_MODE"], "holder": INFO.split()[0],
    "settings": Settings(database_timeout=2, handler_timeout=int(os.environ["WORKER_HANDLER_TIMEOUT_MS"]) / 1000),
}  # fmt: skip
INSERT = "INSERT INTO effect (principal, key, note) VALUES (%s, %s, %s)"


def end_of(work):
    order = work.request
    if work.attempt < order.get("throw_until", 0):
        raise RuntimeError("thrown by the handler")
    if work.attempt < order.get("nothing_until", 0):
        raise NothingHappened("nothing happened")
    return Answer(order["status"], body=order.get("body", "").encode()) if "status" in order else None


def main():
    with ConnectionPool(INFO, open=True, **POOL) as pool, ConnectionPool(INFO, open=True, kwargs={"autocommit": True}, **POOL) as others:

        def aside(statement, *values):
            with others.connection() as connection:
                connection.execute(statement, values)

        def handle(work):
            if "effect" in work.request:
                effect = (work.principal, work.key, work.request["effect"])
                aside(INSERT, *effect) if work.client is None else work.client.execute(INSERT, effect)
            if "gate" in work.request:
                aside("SELECT pg_advisory_lock_shared(%s), pg_advisory_unlock_shared(%s)", *[work.request["gate"]] * 2)
            if "lost" in work.request:
                work.lost.wait()
                aside(INSERT, work.principal, work.key, "lost")
            return end_of(work)

        own = worker(database(pool), os.environ["WORKER_SCOPE"], handle, **OPTIONS)
        signal.signal(signal.SIGTERM, lambda *_: own.stop())
        print("ready", flush=True)
        own.run()


async def main_in_loop():
    async with AsyncConnectionPool(INFO, open=False, **POOL) as pool, AsyncConnectionPool(
        INFO, open=False, kwargs={"autocommit": True}, **POOL
    ) as others:

        async def aside(statement, *values):
            async with others.connection() as connection:
                await connection.execute(statement, values)

        async def handle(work):
            if "effect" in work.request:
                effect = (work.principal, work.key, work.request["effect"])
                await (aside(INSERT, *effect) if work.client is None else work.client.execute(INSERT, effect))
            if "gate" in work.request:
                await asyncio.shield(aside("SELECT pg_advisory_lock_shared(%s), pg_advisory_unlock_shared(%s)", *[work.request["gate"]] * 2))
            if "lost" in work.request:
                try:
                    await asyncio.Event().wait()
                finally:
                    await aside(INSERT, work.principal, work.key, "lost")
            return end_of(work)

        own = worker(database(pool), os.environ["WORKER_SCOPE"], handle, **OPTIONS)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, own.stop)
        print("ready", flush=True)
        await own.run()


if __name__ == "__main__":
    asyncio.run(main_in_loop()) if os.environ.get("WORKER_ASYNC") else main()
