"""LISTEN on a driver's connection that does nothing else: psycopg, psycopg2, asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol


class Ear(Protocol):
    """Of a thread, which waits until its descriptor can be read."""

    def fileno(self) -> int: ...

    def heard(self) -> bool:
        """Whether a notification has come; raises if the connection is lost."""


def _listen(channel: str) -> str:
    return 'LISTEN "%s"' % channel.replace('"', '""')


class _Ear:
    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def fileno(self) -> int:
        return self._driver.fileno()  # type: ignore[no-any-return]

    def heard(self) -> bool:
        if hasattr(self._driver, "pgconn"):
            return _heard(self._driver.pgconn)
        self._driver.poll()  # psycopg2
        found = bool(self._driver.notifies)
        self._driver.notifies.clear()
        return found


def _heard(libpq: Any) -> bool:
    libpq.consume_input()
    found = False
    while libpq.notifies() is not None:
        found = True
    return found


@contextmanager
def listen(db: Any, channel: str, within: float) -> Iterator[Ear]:
    with db.listening(within) as driver:
        driver.autocommit = True
        with driver.cursor() as cursor:
            cursor.execute(_listen(channel))
        yield _Ear(driver)


@asynccontextmanager
async def listen_in_loop(db: Any, channel: str, within: float, heard: Callable[[], None], lost: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `heard` for a notification, and `lost` if the connection is lost."""
    async with db.listening(within) as driver:
        if hasattr(driver, "add_listener"):  # asyncpg
            driver.add_termination_listener(lambda _: lost())
            await driver.add_listener(channel, lambda *_: heard())
            yield
            return
        await driver.set_autocommit(True)
        await driver.execute(_listen(channel))
        loop, descriptor = asyncio.get_running_loop(), driver.fileno()

        def read() -> None:
            try:
                if _heard(driver.pgconn):
                    heard()
            except Exception:
                loop.remove_reader(descriptor)
                lost()

        loop.add_reader(descriptor, read)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
