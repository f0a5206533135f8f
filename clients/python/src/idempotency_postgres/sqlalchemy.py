"""SQLAlchemy 2: an Engine, a sessionmaker, or their asynchronous counterparts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import Connection, Engine, text as sql
from sqlalchemy.orm import Session, sessionmaker

from .database import AsyncDatabase, Database, Rows
from .deadline import Deadline, breaking
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
    def transaction(self, deadline: Deadline) -> Iterator[Any]:
        with self._connection(deadline) as connection, connection.begin():
            if self._maker is None:
                yield connection
                return
            with self._maker(bind=connection, join_transaction_mode="rollback_only") as session:
                yield session
                session.commit()  # flushes; the transaction's own COMMIT comes after

    def query(self, tx: Any, text: str, values: Sequence[Value]) -> Rows:
        return tx.execute(sql(named(text)), by_name(values)).mappings().all()  # type: ignore[no-any-return]

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        with self._connection(deadline, isolation_level="AUTOCOMMIT") as connection:
            return self.query(connection, text, values)


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
    async def transaction(self, deadline: Deadline) -> AsyncIterator[Any]:
        async with self._connection(deadline) as connection, connection.begin():
            if self._maker is None:
                yield connection
                return
            async with self._maker(bind=connection, join_transaction_mode="rollback_only") as session:
                yield session
                await session.commit()

    async def query(self, tx: Any, text: str, values: Sequence[Value]) -> Rows:
        return (await tx.execute(sql(named(text)), by_name(values))).mappings().all()  # type: ignore[no-any-return]

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._connection(deadline, isolation_level="AUTOCOMMIT") as connection:
            return await self.query(connection, text, values)
