"""Timers: one thread serves all threads, and the loop serves its tasks."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from .errors import DatabaseLate


class Timer(Protocol):
    def cancel(self) -> None: ...


After = Callable[[float, Callable[[], None]], Timer]


class _Entry:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Timers:
    """A thread that calls functions, which must be quick."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._entries: list[tuple[float, int, _Entry]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        entry = _Entry(call)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="idempotency timers", daemon=True)
                self._thread.start()
            heapq.heappush(self._entries, (time.monotonic() + max(0, seconds), next(self._count), entry))
            if self._entries[0][2] is entry:
                self._changed.notify()
        return entry

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._entries or self._entries[0][0] > time.monotonic():
                    self._changed.wait(self._entries[0][0] - time.monotonic() if self._entries else None)
                _, _, entry = heapq.heappop(self._entries)
            call = entry.call
            if call is not None:
                call()


_timers = Timers()
after_in_thread: After = _timers.after


def after_in_loop(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(max(0, seconds), call)


class Deadline:
    """Counts the database's time, not the handler's. A connection that exceeds it is closed."""

    def __init__(self, limit: float, after: After) -> None:
        self.limit = limit
        self.expired = False
        self._after = after
        self._timer: Timer | None = None
        self._end = self._due = 0.0
        self._counts = False
        self._close: Callable[[], Any] | None = None
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float:
        """For calls with their own timeout, such as a pool's."""
        return max(0.001, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.expired or time.monotonic() > self._end - 0.01

    @property
    def error(self) -> DatabaseLate:
        return DatabaseLate(f"the database did not answer within {self.limit} s")

    def start(self, limit: float | None = None) -> None:
        """The timer goes on if it comes early enough; then it looks again."""
        with self._lock:
            self._end = time.monotonic() + (self.limit if limit is None else limit)
            self._counts = True
            if self._timer is None or self._due > self._end:
                self._cancel()
                self._set()

    def pause(self) -> None:
        """Until the next start. Raises if the time has run out, which closes the connection."""
        with self._lock:
            self._counts = False
        self.check()

    def stop(self) -> None:
        with self._lock:
            self._counts = False
            self._cancel()

    def _set(self) -> None:
        self._due = self._end
        self._timer = self._after(self._end - time.monotonic(), self._expire)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Raises if the time has run out."""
        if self.expired:
            raise self.error

    @contextmanager
    def watch(self, close: Callable[[], Any]) -> Iterator[None]:
        """`close` breaks the connection; it is called from another thread, or in the loop."""
        with self._lock:
            self._close = close
            if self.expired:
                close()
        try:
            yield
        finally:
            with self._lock:
                self._close = None

    def _expire(self) -> None:
        with self._lock:
            self._timer = None
            if not self._counts:
                return
            if time.monotonic() < self._end:
                self._set()
                return
            self.expired = True
            if self._close is not None:
                self._close()


def is_gone(connection: Any) -> bool:
    """Whether the other side has closed a driver's connection; what it has sent stays unread."""
    if hasattr(connection, "is_closed"):  # asyncpg
        return bool(connection.is_closed())
    try:
        poll = select.poll()
        poll.register(connection.fileno(), _HANGUP)
        return bool(poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no poll here, or no descriptor any more
        return False
    except Exception:  # a driver's: the connection is closed
        return True


_HANGUP = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


@contextmanager
def breaking(connection: Any, deadline: Deadline) -> Iterator[None]:
    """Lets `deadline` break a driver's connection: the waiting thread wakes up."""
    if hasattr(connection, "terminate"):  # asyncpg
        with deadline.watch(connection.terminate):
            yield
        return
    try:
        descriptor = connection.fileno()
    except Exception:  # closed before, or a driver that does not disclose its socket
        yield
        return
    # A duplicate of the descriptor: the driver's may have been closed and reused by then.
    own = socket.socket(fileno=os.dup(descriptor))
    try:
        with deadline.watch(lambda: _shut_down(own)):
            yield
    finally:
        own.close()


def breaking_in_loop(connection: Any, deadline: Deadline) -> AbstractContextManager[None]:
    """The same of a connection that only tasks of the loop use: none closes it meanwhile."""

    def close() -> None:
        try:
            descriptor = os.dup(connection.fileno())
        except Exception:  # closed before
            return
        with socket.socket(fileno=descriptor) as own:
            _shut_down(own)

    return deadline.watch(close)


def _shut_down(own: socket.socket) -> None:
    try:
        own.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
