"""asyncpg: a pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from .database import AsyncDatabase, Guarded, Open, Rows, Statement
from .deadline import Deadline, breaking
from .statements import Value, untyped


def database(pool: Any) -> AsyncDatabase[asyncpg.Connection]:
    """Handlers get a connection of this pool, in a transaction."""
    return _Asyncpg(pool)


class _Asyncpg:
    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._tasks: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def _connection(self, deadline: Deadline) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._pool.acquire(timeout=deadline.remaining)
        driver = getattr(connection, "_con", connection)  # without the pool's wrapper, which forgets it when released
        try:
            with breaking(driver, deadline):
                yield connection
        finally:
            task = asyncio.ensure_future(self._give_back(connection, deadline.limit))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, connection: asyncpg.Connection, limit: float) -> None:
        """No answer waits for it. The pool resets the connection, which rolls back what is open."""
        try:
            await self._pool.release(connection, timeout=limit)
        except Exception:  # it is closed then
            pass

    @asynccontextmanager
    async def transaction(self, deadline: Deadline, first: Statement | None) -> AsyncIterator[Open[asyncpg.Connection]]:
        async with self._connection(deadline) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                rows = await self.query(connection, *first) if first else ()
                own: Open[Any] = Open(Guarded(connection), rows, connection.is_closed)
                yield own
                if own.last is None:
                    return
                await self.query(connection, *own.last)
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def query(self, tx: asyncpg.Connection, text: str, values: Sequence[Value]) -> Rows:
        return await tx.fetch(untyped(text), *values)  # type: ignore[no-any-return]

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._connection(deadline) as connection:
            return await self.query(connection, text, values)

    @asynccontextmanager
    async def listening(self, within: float) -> AsyncIterator[asyncpg.Connection]:
        """A connection for LISTEN alone: the pool makes another in its place."""
        connection = await self._pool.acquire(timeout=within)
        driver = getattr(connection, "_con", connection)
        try:
            yield driver
        finally:
            driver.terminate()
            await self._give_back(connection, within)
