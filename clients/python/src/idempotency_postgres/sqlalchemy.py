"""SQLAlchemy 2: an Engine, a sessionmaker, or their asynchronous counterparts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import Connection, Engine, text as sql
from sqlalchemy.orm import Session, sessionmaker

from .database import AsyncDatabase, Database, Open, Rows, Statement
from .deadline import Deadline, breaking, is_gone
from .statements import Value, by_name, named

if TYPE_CHECKING:  # it needs greenlet, which blocking programs may lack
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker


@overload
def database(source: Engine) -> Database[Connection]: ...
@overload
def database(source: sessionmaker[Session]) -> Database[Session]: ...
@overload
def database(source: AsyncEngine) -> AsyncDatabase[AsyncConnection]: ...
@overload
def database(source: async_sessionmaker[AsyncSession]) -> AsyncDatabase[AsyncSession]: ...
def database(source: Any) -> Any:
    """Handlers get a connection in a transaction, or a session that is bound to one."""
    engine, maker = source, None
    if hasattr(source, "kw"):
        engine, maker = source.kw.get("bind"), source
        if engine is None:
            raise TypeError("idempotency: the sessionmaker has to be bound to an engine")
    return _Async(engine, maker) if hasattr(engine, "sync_engine") else _Blocking(engine, maker)


class _Blocking:
    def __init__(self, engine: Engine, maker: Any) -> None:
        self._engine, self._maker = engine, maker

    @contextmanager
    def _connection(self, deadline: Deadline, **options: Any) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            deadline.check()
            with breaking(connection.connection.driver_connection, deadline):
                yield connection.execution_options(**options)

    @contextmanager
    def transaction(self, deadline: Deadline, first: Statement | None) -> Iterator[Open[Any]]:
        with self._connection(deadline) as connection, connection.begin():
            driver = connection.connection.driver_connection
            rows = self.query(connection, *first) if first else ()
            with self._work_of(connection) as tx:
                own: Open[Any] = Open(tx, rows, lambda: is_gone(driver))
                yield own
                if own.last is None:
                    return  # it has done nothing; after ROLLBACK psycopg would prepare all statements anew
                if self._maker is not None:
                    tx.commit()  # flushes; the transaction's own COMMIT comes after
            self.query(connection, *own.last)

    def _work_of(self, connection: Connection) -> Any:
        return nullcontext(connection) if self._maker is None else self._maker(bind=connection, join_transaction_mode="rollback_only")

    def query(self, tx: Any, text: str, values: Sequence[Value]) -> Rows:
        return tx.execute(sql(named(text)), by_name(values)).mappings().all()  # type: ignore[no-any-return]

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        with self._connection(deadline, isolation_level="AUTOCOMMIT") as connection:
            return self.query(connection, text, values)

    @contextmanager
    def listening(self, within: float) -> Iterator[Any]:
        """A driver's connection for LISTEN alone: it leaves the pool."""
        with self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            connection.detach()
            yield driver


class _Async:
    def __init__(self, engine: AsyncEngine, maker: Any) -> None:
        self._engine, self._maker = engine, maker

    @asynccontextmanager
    async def _connection(self, deadline: Deadline, **options: Any) -> AsyncIterator[AsyncConnection]:
        connection = self._engine.connect()
        await asyncio.wait_for(connection.start(), deadline.remaining)
        try:
            driver = (await connection.get_raw_connection()).driver_connection
            with breaking(driver, deadline):
                yield await connection.execution_options(**options) if options else connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def transaction(self, deadline: Deadline, first: Statement | None) -> AsyncIterator[Open[Any]]:
        async with self._connection(deadline) as connection, connection.begin():
            driver = (await connection.get_raw_connection()).driver_connection
            rows = await self.query(connection, *first) if first else ()
            async with self._work_of(connection) as tx:
                own: Open[Any] = Open(tx, rows, lambda: is_gone(driver))
                yield own
                if own.last is None:
                    return
                if self._maker is not None:
                    await tx.commit()
            await self.query(connection, *own.last)

    def _work_of(self, connection: AsyncConnection) -> Any:
        return nullcontext(connection) if self._maker is None else self._maker(bind=connection, join_transaction_mode="rollback_only")

    async def query(self, tx: Any, text: str, values: Sequence[Value]) -> Rows:
        return (await tx.execute(sql(named(text)), by_name(values))).mappings().all()  # type: ignore[no-any-return]

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._connection(deadline, isolation_level="AUTOCOMMIT") as connection:
            return await self.query(connection, text, values)

    @asynccontextmanager
    async def listening(self, within: float) -> AsyncIterator[Any]:
        connection = self._engine.connect()
        await asyncio.wait_for(connection.start(), within)
        try:
            raw = await connection.get_raw_connection()
            driver = raw.driver_connection
            raw.detach()
            yield driver
        finally:
            await connection.close()
