"""The interface of a driver's adapter; and one core for blocking and asynchronous drivers.

The flows are coroutines. With a blocking driver nothing in them ever suspends, so `drive` runs one to its end
in the caller's thread, without an event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar, Union

from .contract import PROBLEM
from .deadline import After, Deadline, after_in_loop, after_in_thread
from .errors import DatabaseAway, is_connection_lost
from .statements import Value

Tx = TypeVar("Tx")
T = TypeVar("T")
Rows = Sequence[Mapping[str, Any]]


Statement = tuple[str, Sequence[Value]]


class Open(Generic[Tx]):
    """A transaction that has begun."""

    def __init__(self, tx: Tx, rows: Rows = (), gone: Callable[[], bool] = lambda: False) -> None:
        self.tx = tx
        self.rows = rows
        """Of the first statement."""
        self.gone = gone
        """Whether the connection has ended: one look, no round trip."""
        self.last: Statement | None = None
        """To be run before COMMIT. Without one, the transaction rolls back."""

    def work_is_over(self) -> None:
        """The handler cannot use the transaction any more, where the adapter can tell."""
        if type(self.tx) is Guarded:
            self.tx.__dict__["over"] = True


class Guarded:
    """A driver's connection until the work is over: then it may serve another request."""

    def __init__(self, target: Any) -> None:
        self.__dict__.update(target=target, over=False)

    def __getattr__(self, name: str) -> Any:
        if self.__dict__["over"]:
            raise RuntimeError("idempotency: the transaction has ended, so the handler cannot use it any more")
        return getattr(self.__dict__["target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["target"], name, value)

    @property  # type: ignore[misc]  # for isinstance
    def __class__(self) -> Any:
        return type(self.__dict__["target"])


class Database(Protocol[Tx]):
    """A blocking driver. Handlers get a `Tx`: a connection or a session in a transaction."""

    def transaction(self, deadline: Deadline, first: Statement | None) -> AbstractContextManager[Open[Tx]]:
        """BEGIN and the first statement, then the block, then the last statement and COMMIT.

        Two of these are one message where the driver can. Rolls back if the block raises or sets no last
        statement, or if that fails.
        """

    def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows:
        """One statement in such a transaction."""

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        """One statement that is its own transaction."""


class AsyncDatabase(Protocol[Tx]):
    """The same of an asynchronous one."""

    def transaction(self, deadline: Deadline, first: Statement | None) -> AbstractAsyncContextManager[Open[Tx]]: ...

    async def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows: ...

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows: ...


AnyDatabase = Union[Database[Tx], AsyncDatabase[Tx]]


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("idempotency: something asynchronous was given to a blocking database")


class Io(Generic[Tx]):
    """The flows' view of a database: everything can be awaited."""

    is_async: bool
    after: After
    db: Any

    def transaction(self, deadline: Deadline, first: Statement | None) -> AbstractAsyncContextManager[Open[Tx]]:
        raise NotImplementedError

    async def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows:
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        raise NotImplementedError

    async def _statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        raise NotImplementedError

    async def statement(self, within: float, text: str, values: Sequence[Value]) -> Rows:
        deadline = Deadline(within, self.after)
        deadline.start()
        try:
            return await self._statement(text, values, deadline)
        except Exception as error:
            if deadline.over:
                raise deadline.error from error
            if is_connection_lost(error):
                raise DatabaseAway("the database is away") from error
            raise
        finally:
            deadline.stop()

    async def problem(self, word: str, within: float) -> dict[str, Any]:
        (row,) = await self.statement(within, PROBLEM, [word])
        problem = row["problem"]
        return json.loads(problem) if isinstance(problem, str) else dict(problem)


class BlockingIo(Io[Tx]):
    is_async = False

    def __init__(self, db: Database[Tx]) -> None:
        self.db, self.after = db, after_in_thread

    @asynccontextmanager
    async def transaction(self, deadline: Deadline, first: Statement | None) -> AsyncIterator[Open[Tx]]:
        with self.db.transaction(deadline, first) as own:
            yield own

    async def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows:
        return self.db.query(tx, text, values)

    async def _statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        return self.db.statement(text, values, deadline)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncIo(Io[Tx]):
    is_async = True

    def __init__(self, db: AsyncDatabase[Tx]) -> None:
        self.db, self.after = db, after_in_loop

    def transaction(self, deadline: Deadline, first: Statement | None) -> AbstractAsyncContextManager[Open[Tx]]:
        return self.db.transaction(deadline, first)

    async def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows:
        return await self.db.query(tx, text, values)

    async def _statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        return await self.db.statement(text, values, deadline)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def is_async(db: Any) -> bool:
    return asyncio.iscoroutinefunction(db.query)


def io_of(db: AnyDatabase[Tx]) -> Io[Tx]:
    return AsyncIo(db) if is_async(db) else BlockingIo(db)  # type: ignore[arg-type]


class InThreads(Generic[Tx]):
    """A blocking database for an asynchronous framework. Its connections move between threads, one at a time."""

    def __init__(self, db: Database[Tx], threads: int = 40) -> None:
        self.db = db
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "idempotency")
        # A transaction needs at most one thread at a time, so none waits for another's.
        self._slots = asyncio.Semaphore(threads)

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(call, *arguments))

    @asynccontextmanager
    async def transaction(self, deadline: Deadline, first: Statement | None) -> AsyncIterator[Open[Tx]]:
        async with self._slots:
            manager = self.db.transaction(deadline, first)
            own = await self._run(manager.__enter__)
            try:
                yield own
            except BaseException as error:
                await asyncio.shield(self._run(manager.__exit__, type(error), error, error.__traceback__))
                raise
            await asyncio.shield(self._run(manager.__exit__, None, None, None))

    async def query(self, tx: Tx, text: str, values: Sequence[Value]) -> Rows:
        return await self._run(self.db.query, tx, text, values)

    async def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        async with self._slots:
            return await self._run(self.db.statement, text, values, deadline)


async def settled(value: T | Awaitable[T]) -> T:
    """The result of a function that may have been asynchronous."""
    if hasattr(value, "__await__"):
        return await value  # type: ignore[no-any-return, unused-ignore]
    return value
