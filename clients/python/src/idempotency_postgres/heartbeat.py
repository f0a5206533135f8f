"""Extends the lease of a claim, and knows when it may have expired.

A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease later. A failed
beat does not tell who owns the claim, so the work continues until the lease may have expired. That is counted
from the moment at which the last successful request was sent, so our count ends before the server's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .database import drive
from .deadline import After, Timer
from .errors import LeaseLost, is_lost

T = TypeVar("T")
now = time.monotonic


class Heartbeat:
    def __init__(
        self, lease: float, sent: float, after: After,
        extend: Callable[[float], Awaitable[object]], on_lost: Callable[[], None],
    ) -> None:  # fmt: skip
        self.lost = threading.Event()
        self.why: BaseException | None = None
        self._lease, self._after, self._extend, self._on_lost = lease, after, extend, on_lost
        self._until = 0.0
        self._timer: Timer | None = None
        self._lock = threading.RLock()
        self.stopped = threading.Event()
        self.succeeded(sent)

    def succeeded(self, sent: float) -> None:
        """A request that was sent then has extended the lease."""
        with self._lock:
            if sent + self._lease <= self._until or self.lost.is_set():
                return
            self._until = sent + self._lease
            if self._timer is not None:
                self._timer.cancel()
            if not self.stopped.is_set():
                self._timer = self._after(self._until - now(), self._over)

    def stop(self) -> None:
        with self._lock:
            self.stopped.set()
            if self._timer is not None:
                self._timer.cancel()

    def resume(self) -> None:
        """`run` may be called again, unless the lease has ended meanwhile."""
        with self._lock:
            if not self.stopped.is_set() or self.lost.is_set():
                return
            self.stopped = threading.Event()  # a beat of the run before, which may be in flight, has its own
        self._over()

    def check(self) -> None:
        if self.lost.is_set():
            raise LeaseLost("the claim is lost: nothing more may be done") from self.why

    def lose(self, why: BaseException) -> None:
        with self._lock:
            if self.stopped.is_set() or self.lost.is_set():
                return
            self.why = why
            self.lost.set()
            self.stop()
        self._tell()
        self._on_lost()

    def _tell(self) -> None:
        """Tells the work, if the event is not enough."""

    def _over(self) -> None:
        with self._lock:
            if now() < self._until:  # a timer may come early, or a beat have succeeded just now
                self._timer = self._after(self._until - now(), self._over)
                return
        self.lose(TimeoutError("the lease may have ended"))

    async def beat(self) -> float | None:
        """One beat; returns the pause before the next, or None if there is none."""
        sent = now()
        try:
            await self._extend(self._lease / 6)
        except Exception as error:
            if is_lost(error):
                self.lose(error)
                return None
            return self._lease / 10
        self.succeeded(sent)
        return max(0.0, sent + self._lease / 3 - now())

    def _first_pause(self) -> float:
        """Before a run's first beat, which is due a third of the lease after the last request that extended it."""
        return max(0.0, self._until - self._lease * 2 / 3 - now())

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work`, with beats at the same time."""
        raise NotImplementedError


class ThreadHeartbeat(Heartbeat):
    """The work checks `lost`, or the next step raises."""

    at_end: Callable[[], None] | None = None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        threading.Thread(target=self._beats, args=(self.stopped,), name="idempotency heartbeat", daemon=True).start()
        try:
            return await work()
        finally:
            self.stop()

    def _beats(self, stopped: threading.Event) -> None:
        delay: float | None = self._first_pause()
        try:
            while delay is not None and not stopped.wait(delay):
                delay = drive(self.beat())
        finally:
            if self.at_end is not None:
                self.at_end()


class TaskHeartbeat(Heartbeat):
    """The work is a separate task, which is cancelled."""

    _worker: asyncio.Task[object] | None = None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def worker() -> T:
            return await work()

        task = asyncio.ensure_future(worker())
        self._worker = task  # type: ignore[assignment]
        beats = asyncio.ensure_future(self._beats())
        try:
            return await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
            raise
        finally:
            self.stop()
            beats.cancel()

    def _tell(self) -> None:
        if self._worker is not None:
            self._worker.cancel()

    async def _beats(self) -> None:
        delay: float | None = self._first_pause()
        while delay is not None:
            await asyncio.sleep(delay)
            if self.stopped.is_set():
                return
            delay = await self.beat()
