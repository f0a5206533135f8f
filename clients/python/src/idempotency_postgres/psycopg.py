"""psycopg 3: a ConnectionPool or an AsyncConnectionPool of psycopg_pool."""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, overload

from psycopg import AsyncConnection, AsyncRawCursor, Connection, OperationalError, RawCursor
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from .database import AsyncDatabase, Database, Guarded, Open, Rows, Statement, settled
from .deadline import Deadline, after_in_loop, after_in_thread, breaking, breaking_in_loop, is_gone
from .errors import Unprepared
from .statements import Value
from .together import Preparing, Results, together


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


COMMIT: Statement = ("COMMIT", [])


def check(results: Results) -> None:
    """A COMMIT of a transaction that has failed succeeds by rolling it back."""
    if results.tag != "COMMIT":
        raise RuntimeError("idempotency: COMMIT has rolled back")


def beginning(connection: Any, first: Statement | None) -> list[Statement]:
    """BEGIN with the connection's characteristics, and the first statement."""
    return [(connection._get_tx_start_command().decode(), []), *([first] if first else [])]


def _called(value: Any) -> Any:
    """Newer pools take a function for each."""
    return value() if callable(value) else value


def _for_listen(options: Any, within: float) -> dict[str, Any]:
    return {"connect_timeout": math.ceil(within), **(options or {}), "autocommit": True}


END_LIMIT = 10.0  # seconds for the end of a transaction that no answer waits for
_aside = ThreadPoolExecutor(2, "idempotency ends")


class _Blocking:
    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._preparing = Preparing()

    def _take(self, deadline: Deadline) -> Connection[Any]:
        connection = self._pool.getconn(timeout=deadline.remaining)
        while _is_dead(connection):
            connection.close()
            self._pool.putconn(connection)
            connection = self._pool.getconn(timeout=deadline.remaining)
        return connection

    @contextmanager
    def _connection(self, deadline: Deadline) -> Iterator[Connection[Any]]:
        connection = self._take(deadline)
        try:
            with breaking(connection, deadline):
                yield connection
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def transaction(self, deadline: Deadline, first: Statement | None) -> Iterator[Open[Connection[Any]]]:
        connection = self._take(deadline)
        later = False
        try:
            with breaking(connection, deadline):
                try:
                    rows = self._together(connection, *beginning(connection, first)).rows
                    own: Open[Any] = Open(Guarded(connection), rows, lambda: is_gone(connection))
                    yield own
                    if own.last is None:
                        later = True
                    else:
                        check(self._together(connection, own.last, COMMIT))
                except BaseException:
                    self._roll_back(connection)
                    raise
        finally:
            if later:
                _aside.submit(self._end, connection)
            else:
                self._pool.putconn(connection)

    def _together(self, connection: Connection[Any], *statements: Statement) -> Results:
        """In one message."""
        with connection.lock:
            return connection.wait(together(connection, self._preparing, *statements))

    @staticmethod
    def _roll_back(connection: Connection[Any]) -> None:
        try:
            connection.rollback()
        except Exception:
            connection.close()  # which rolls back, too

    def _end(self, connection: Connection[Any]) -> None:
        """It has done nothing, so COMMIT is as good as ROLLBACK, after which psycopg would prepare all statements anew."""
        deadline = Deadline(END_LIMIT, after_in_thread)
        deadline.start()
        try:
            with breaking(connection, deadline):
                connection.commit()
        except Exception:
            connection.close()
        finally:
            deadline.stop()
            self._pool.putconn(connection)

    def query(self, tx: Connection[Any], text: str, values: Sequence[Value]) -> Rows:
        with RawCursor(tx, row_factory=dict_row) as cursor:
            return cursor.execute(text.encode(), values).fetchall()

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        with self._connection(deadline) as connection:
            try:
                return self._together(connection, (text, values)).rows
            except Unprepared:
                return self._together(connection, (text, values)).rows

    @contextmanager
    def listening(self, within: float) -> Iterator[Connection[Any]]:
        """A connection for LISTEN alone, beside the pool."""
        conninfo, options = (_called(one) for one in (self._pool.conninfo, self._pool.kwargs))
        with closing(self._pool.connection_class.connect(conninfo, **_for_listen(options, within))) as connection:
            yield connection


class _Async:
    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._preparing = Preparing()
        self._tasks: set[asyncio.Future[None]] = set()

    async def _take(self, deadline: Deadline) -> AsyncConnection[Any]:
        connection = await self._pool.getconn(timeout=deadline.remaining)
        while _is_dead(connection):
            await connection.close()
            await self._pool.putconn(connection)
            connection = await self._pool.getconn(timeout=deadline.remaining)
        return connection

    @asynccontextmanager
    async def _connection(self, deadline: Deadline) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await self._take(deadline)
        try:
            with breaking_in_loop(connection, deadline):
                yield connection
        finally:
            await self._pool.putconn(connection)

    @asynccontextmanager
    async def transaction(self, deadline: Deadline, first: Statement | None) -> AsyncIterator[Open[AsyncConnection[Any]]]:
        connection = await self._take(deadline)
        later = False
        try:
            with breaking_in_loop(connection, deadline):
                try:
                    rows = (await self._together(connection, *beginning(connection, first))).rows
                    own: Open[Any] = Open(Guarded(connection), rows, lambda: is_gone(connection))
                    yield own
                    if own.last is None:
                        later = True
                    else:
                        check(await self._together(connection, own.last, COMMIT))
                except BaseException:
                    await self._roll_back(connection)
                    raise
        finally:
            if later:
                task = asyncio.ensure_future(self._end(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                await self._pool.putconn(connection)

    async def _together(self, connection: AsyncConnection[Any], *statements: Statement) -> Results:
        """In one message."""
        async with connection.lock:
            return await connection.wait(together(connection, self._preparing, *statements))

    @staticmethod
    async def _roll_back(connection: AsyncConnection[Any]) -> None:
        try:
            await connection.rollback()
        except Exception:
            await connection.close()  # which rolls back, too

    async def _end(self, connection: AsyncConnection[Any]) -> None:
        """It has done nothing, so COMMIT is as good as ROLLBACK, after which psycopg would prepare all statements anew."""
        deadline = Deadline(END_LIMIT, after_in_loop)
        deadline.start()
        try:
            with breaking_in_loop(connection, deadline):
                await connection.commit()
        except Exception:
            await connection.close()
        finally:
            deadline.stop()
            await self._pool.putconn(connection)

    async def query(self, tx: AsyncConnection[Any], text: str, values: Sequence[Value]) -> Rows:
        async with AsyncRawCursor(tx, row_factory=dict_row) as cursor:
            return await (await cursor.execute(text.encode(), values)).fetchall()

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._connection(deadline) as connection:
            try:
                return (await self._together(connection, (text, values))).rows
            except Unprepared:
                return (await self._together(connection, (text, values))).rows

    @asynccontextmanager
    async def listening(self, within: float) -> AsyncIterator[AsyncConnection[Any]]:
        conninfo, options = [await settled(_called(one)) for one in (self._pool.conninfo, self._pool.kwargs)]
        connection = await self._pool.connection_class.connect(conninfo, **_for_listen(options, within))
        try:
            yield connection
        finally:
            await connection.close()
