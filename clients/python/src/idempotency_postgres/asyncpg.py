"""asyncpg: a pool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from .database import AsyncDatabase, Rows
from .deadline import Deadline, breaking
from .statements import Value, untyped


def database(pool: Any) -> AsyncDatabase[asyncpg.Connection]:
    """Handlers get a connection of this pool, in a transaction."""
    return _Asyncpg(pool)


class _Asyncpg:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def _connection(self, deadline: Deadline) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._pool.acquire(timeout=deadline.remaining)
        driver = getattr(connection, "_con", connection)  # without the pool's wrapper, which forgets it when released
        try:
            with breaking(driver, deadline):
                yield connection
        finally:
            # The pool's work before it takes a connection back must end, too.
            await self._pool.release(connection, timeout=deadline.limit)

    @asynccontextmanager
    async def transaction(self, deadline: Deadline) -> AsyncIterator[asyncpg.Connection]:
        async with self._connection(deadline) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
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
