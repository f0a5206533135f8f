"""psycopg 3: a ConnectionPool or an AsyncConnectionPool of psycopg_pool."""

from __future__ import annotations

import select
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, overload

from psycopg import AsyncConnection, AsyncRawCursor, Connection, OperationalError, RawCursor
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from .database import AsyncDatabase, Database, Rows
from .deadline import Deadline, breaking
from .statements import Value


@overload
def database(pool: ConnectionPool[Any]) -> Database[Connection[Any]]: ...
@overload
def database(pool: AsyncConnectionPool[Any]) -> AsyncDatabase[AsyncConnection[Any]]: ...
def database(pool: Any) -> Any:
    """Handlers get a connection of this pool, in a transaction."""
    return _Async(pool) if isinstance(pool, AsyncConnectionPool) else _Blocking(pool)


def _is_dead(connection: Any) -> bool:
    """Whether it was closed from the other side while it was idle: one look, no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return False
    try:
        connection.pgconn.consume_input()
    except OperationalError:
        return True
    return False


class _Blocking:
    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool

    @contextmanager
    def _connection(self, deadline: Deadline) -> Iterator[Connection[Any]]:
        connection = self._pool.getconn(timeout=deadline.remaining)
        while _is_dead(connection):
            connection.close()
            self._pool.putconn(connection)
            connection = self._pool.getconn(timeout=deadline.remaining)
        try:
            with breaking(connection, deadline):
                yield connection
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def transaction(self, deadline: Deadline) -> Iterator[Connection[Any]]:
        with self._connection(deadline) as connection, connection.transaction():
            yield connection

    def query(self, tx: Connection[Any], text: str, values: Sequence[Value]) -> Rows:
        with RawCursor(tx, row_factory=dict_row) as cursor:
            return cursor.execute(text.encode(), values).fetchall()

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        with self._connection(deadline) as connection:
            before = connection.autocommit
            connection.autocommit = True
            try:
                return self.query(connection, text, values)
            finally:
                if not connection.closed:
                    connection.autocommit = before


class _Async:
    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    @asynccontextmanager
    async def _connection(self, deadline: Deadline) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await self._pool.getconn(timeout=deadline.remaining)
        while _is_dead(connection):
            await connection.close()
            await self._pool.putconn(connection)
            connection = await self._pool.getconn(timeout=deadline.remaining)
        try:
            with breaking(connection, deadline):
                yield connection
        finally:
            await self._pool.putconn(connection)

    @asynccontextmanager
    async def transaction(self, deadline: Deadline) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._connection(deadline) as connection, connection.transaction():
            yield connection

    async def query(self, tx: AsyncConnection[Any], text: str, values: Sequence[Value]) -> Rows:
        async with AsyncRawCursor(tx, row_factory=dict_row) as cursor:
            return await (await cursor.execute(text.encode(), values)).fetchall()

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._connection(deadline) as connection:
            before = connection.autocommit
            await connection.set_autocommit(True)
            try:
                return await self.query(connection, text, values)
            finally:
                if not connection.closed:
                    await connection.set_autocommit(before)
