"""Works off what no client sends again: claims the records that are due, runs a handler, and ends each claim."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import math
import random
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Union, overload

from .claim import Answer, Record, Request
from .contract import DUE, LEASE_MS
from .database import AnyDatabase, AsyncDatabase, Database, Io, Tx, drive, io_of, settled
from .errors import LeaseLost, Unprepared, is_conflict, is_lost, is_mistake
from .flows import (
    LEASED_HANDLER_TIMEOUT, Result, Settings, _completion, _Held, _NotKept, _Thrown, _Transaction, _Undone, _unknown, _verdict_on,
)  # fmt: skip
from .heartbeat import now
from .listen import Ear, listen, listen_in_loop
from .statements import milliseconds

log = logging.getLogger("idempotency_postgres")
Mode = Literal["transactional", "leased"]
Seconds = Union[float, datetime.timedelta]
LONGEST_PAUSE = 30.0  # seconds between two tries to reach a database that is away


@dataclass(frozen=True)
class Work(Generic[Tx]):
    """The handler's view of a claim."""

    key: str
    scope: str
    principal: str
    token: int
    attempt: int
    """One more than that of the attempt before."""
    operation: str | None
    """The function of idem_execute."""
    method: str | None
    path: str | None
    request: Any
    """The JSON of the request, where the policy has `store_request`."""
    recovery_point: str | None
    state: Mapping[str, Any]
    """The results of the steps that are done, by name."""
    error: str | None
    """Of the last attempt."""
    kind: Mode
    lost: threading.Event = field(repr=False)
    """Set when the handler must stop: the lease is lost, or the worker is aborted."""
    client: Tx = None  # type: ignore[assignment]
    """The transaction, in mode `transactional`."""
    _held: Any = field(default=None, repr=False)

    def check(self) -> None:
        """Raises LeaseLost if the handler must stop."""
        if self.lost.is_set():
            raise LeaseLost("the handler must stop: nothing more may be done")

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """In mode `leased`: as of a leased claim. With an asynchronous database it is awaited."""
        return self._leased().step(name, work)

    def unknown(self, error: str | None = None, reference: str | None = None) -> Any:
        """In mode `leased`: as of a leased claim."""
        return self._leased().unknown(error, reference)

    def _leased(self) -> Any:
        if self._held is None:
            raise TypeError("idempotency: only a worker in mode `leased` has steps")
        return self._held


Handler = Callable[[Work[Any]], Union[Answer, None, Awaitable[Union[Answer, None]]]]


# ---- one claim ----


class _Leased(_Held):
    """A claim of mode `leased`, from its grant to its end."""

    def __init__(self, io: Io[Any], row: Mapping[str, Any], settings: Settings, sent: float) -> None:
        self._row = row
        self._aborted = False
        request = Request(row["key"], row["scope"], row["principal"])
        record = Record(
            "execute", row["key"], int(row["token"]), int(row["attempt"]), recovery_point=row["recovery_point"], state=_json(row["state"]),
        )  # fmt: skip
        super().__init__(io, request, record, settings, sent)

    async def settle(self, work: Handler) -> Result:
        return await super().settle(lambda claim: _answer_of(work, self._work("leased", _held=claim)))

    def _work(self, kind: Mode, **more: Any) -> Work[Any]:
        row, record = self._row, self._record
        return Work(
            record.key, row["scope"], row["principal"], record.token or 0, record.attempt or 1, row["operation"], row["method"], row["path"],
            _json(row["request"]), record.recovery_point, self._state, row["error"], kind, self._heart.lost, **more,
        )  # fmt: skip

    def abort(self) -> None:
        """Tells the handler to stop. The claim is ours still, and ends by what the handler does."""
        self._aborted = self._aborted or not self._heart.lost.is_set()
        self._heart.lose(LeaseLost("the worker is aborted"))

    def _is_lost(self) -> bool:
        return super()._is_lost() and not self._aborted


class _InTransaction(_Leased):
    """A claim whose result commits together with the effects of the handler."""

    async def settle(self, work: Handler) -> Result:
        try:
            return await self._run_again_after_conflicts(work)
        except _NotKept as end:
            return end.result if await self._fail_if_ours(end.result) else LOST
        except _Undone as end:
            return Result("executed", end.answer, self._record) if await self._complete(end.answer) else LOST
        except (Exception, asyncio.CancelledError) as raised:
            error = raised.error if isinstance(raised, _Thrown) else raised
            if self._is_lost():
                return LOST
            if error is raised and is_lost(error):  # of idem_complete
                self._settings.on_lease_lost(self._record)
                return LOST
            with suppress(Exception):  # its lease ends the claim then
                await self._fail(str(error) or type(error).__name__, False)
            raise error from error.__cause__

    async def _run_again_after_conflicts(self, work: Handler) -> Result:
        attempt = 1
        while True:
            try:
                return await self._heart.run(lambda: self._run(work))
            except Unprepared:  # the next run prepares nothing
                self._heart.resume()
            except Exception as raised:
                error = raised.error if isinstance(raised, _Thrown) else raised
                if attempt >= self._settings.attempts or self._heart.lost.is_set() or not is_conflict(error):
                    raise
                self._heart.resume()
                await self._io.pause(0.02 * 2 ** (attempt - 1) * (0.5 + random.random()))
                if self._heart.lost.is_set():  # during COMMIT or the pause
                    raise
                attempt += 1

    async def _fail_if_ours(self, result: Result) -> bool:
        assert result.answer is not None
        return not self._is_lost() and await self._fail(f"status {result.answer.status}", False)

    async def _run(self, work: Handler) -> Result:
        limit = self._settings.handler_timeout
        settings = replace(self._settings, handler_timeout=LEASED_HANDLER_TIMEOUT if limit is None else limit)
        async with _Transaction(self._io, settings, None) as own:
            answer = await own.answer(lambda claim: _answer_of(work, claim), self._work("transactional", client=own.tx))
            self._heart.stop()  # a beat would wait for the result, and then miss the claim
            if self._is_lost():
                raise LeaseLost("the claim is lost")
            verdict = _verdict_on(answer, settings)
            if verdict not in ("keep", "unknown"):
                raise _NotKept(Result("not_kept", answer, self._record))
            if answer is not None and answer.raised:
                raise _Undone(answer)
            if verdict == "unknown":
                own.end_with(_unknown(self._request, self._record, f"status {answer.status}"))
                return Result("not_kept", answer, self._record)
            own.end_with(_completion(self._request, self._record, answer, settings))
            return Result("executed", answer, self._record)


LOST = Result("in_progress")


async def _answer_of(work: Handler, claim: Work[Any]) -> Any:
    answer = await settled(work(claim))
    if answer is not None and not isinstance(answer, Answer):
        raise TypeError(f"idempotency: a handler returns an Answer or nothing, not {type(answer).__name__}")
    return answer


def _json(value: Any) -> Any:
    """asyncpg leaves JSON as text; other drivers have read it, and may have found a text in it."""
    try:
        return json.loads(value) if isinstance(value, (str, bytes)) else value
    except ValueError:
        return value


# ---- the worker ----


@dataclass(frozen=True)
class _Options:
    scope: str
    size: int
    lease: float
    poll: float
    channel: str | None
    mode: Mode
    holder: str | None

    @classmethod
    def of(cls, **given: Any) -> _Options:
        values: dict[str, Any] = {name: one.total_seconds() if isinstance(one, datetime.timedelta) else one for name, one in given.items()}
        for name, (fits, wanted) in _CHECKS.items():
            if not fits(values[name]):
                raise TypeError(f"idempotency: `{name}` has to be {wanted}")
        return cls(**values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "scope": (lambda value: isinstance(value, str), "a text"),
    "size": (lambda value: type(value) is int and 1 <= value <= 1000, "a number from 1 to 1000"),
    "lease": (_is_positive, "a positive number of seconds, or a timedelta"),
    "poll": (_is_positive, "a positive number of seconds, or a timedelta"),
    "channel": (lambda value: value is None or _is_text(value), "a text that is not empty"),
    "mode": (lambda value: value in ("transactional", "leased"), "transactional or leased"),
    "holder": (lambda value: value is None or _is_text(value), "a text that is not empty"),
}


class _Worker:
    """When to look for due records, and what is at work. How to wait is left to threads or the loop."""

    def __init__(self, db: Any, handler: Handler, options: _Options, settings: Settings, on_error: Callable[[BaseException], None]) -> None:
        if options.channel is not None and not hasattr(db, "listening"):
            raise TypeError("idempotency: this database has no connection for `channel`")
        self._io, self._handler, self._options, self._on_error = io_of(db), handler, options, on_error
        self._settings = replace(settings, lease=options.lease)
        self._at_work: set[_Leased] = set()
        self._stopping = False
        self._looks_at_once = True
        self._next_look = 0.0
        self._next_listen = math.inf if options.channel is None else 0.0
        self._outages = self._deafness = 0
        self._knows_its_way = False

    def stop(self) -> None:
        """No new claims; `run` returns when the running handlers have ended. It may be called by a handler of signals."""
        self._stopping = True
        self._wake()

    def abort(self) -> None:
        """Likewise, and running handlers are told to stop. Their claims end by what they do."""
        self.stop()
        for held in list(self._at_work):
            held.abort()

    def _wake(self) -> None:
        raise NotImplementedError

    def _heard(self) -> None:
        self._looks_at_once = True
        self._wake()

    def _pause(self) -> float:
        """Seconds until there is something to do, besides what wakes the worker."""
        listens = self._next_listen - now()
        if len(self._at_work) >= self._options.size:
            return max(0, listens)
        return 0 if self._looks_at_once else max(0, min(listens, self._next_look - now()))

    def _is_time(self) -> bool:
        return len(self._at_work) < self._options.size and (self._looks_at_once or now() >= self._next_look)

    async def _look(self) -> list[_Leased]:
        """Claims what is due."""
        options, sent = self._options, now()
        free = options.size - len(self._at_work)
        self._looks_at_once = False
        try:
            values = [options.scope, str(free), milliseconds(options.lease), options.holder]
            rows = await self._io.statement(self._settings.database_timeout, DUE, values)
        except Exception as error:
            if not self._knows_its_way and is_mistake(error):
                raise
            self._next_look = now() + _longer(options.poll, self._outages)
            self._outages += 1
            self._tell(error)
            return []
        self._knows_its_way, self._outages = True, 0
        self._looks_at_once = self._looks_at_once or len(rows) == free
        self._next_look = now() + _jittered(options.poll)
        kind = _Leased if options.mode == "leased" else _InTransaction
        held = [kind(self._io, row, self._settings, sent) for row in rows]
        self._at_work.update(held)
        return held

    async def _settle(self, held: _Leased) -> None:
        try:
            await held.settle(self._handler)
        except (Exception, asyncio.CancelledError) as error:
            self._tell(error)
        finally:
            self._at_work.discard(held)
            self._wake()

    def _listens(self) -> None:
        """Looks once more: what was queued before has told nobody."""
        self._deafness = 0
        self._next_listen = math.inf
        self._looks_at_once = True

    def _is_deaf(self, error: BaseException) -> None:
        self._next_listen = now() + _longer(1, self._deafness)
        self._deafness += 1
        self._tell(error)

    def _tell(self, error: BaseException) -> None:
        try:
            self._on_error(error)
        except Exception:
            log.exception("on_error has failed")


def _jittered(seconds: float) -> float:
    return seconds * (0.5 + random.random())


def _longer(seconds: float, failures: int) -> float:
    return _jittered(min(LONGEST_PAUSE, seconds * 2 ** min(failures, 20)))


class Worker(_Worker):
    """`run` works in the caller's thread, and each handler in another."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)

    def run(self) -> None:
        """Until `stop` is called. Raises a mistake that the first call shows, such as a missing right."""
        with ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for end in (self._woken, self._waker):
                stack.enter_context(end)
            selector.register(self._woken, selectors.EVENT_READ)
            ear = stack.enter_context(_OpenEar(self, selector))
            pool = stack.enter_context(ThreadPoolExecutor(self._options.size, "idempotency worker"))
            while not self._stopping:
                ear.open()
                if self._is_time():
                    for held in drive(self._look()):
                        pool.submit(self._work_off, held)
                for key, _ in selector.select(min(self._pause(), 3600)):
                    if key.fileobj is self._woken:
                        with suppress(BlockingIOError):
                            self._woken.recv(4096)
                    else:
                        ear.read()

    def _work_off(self, held: _Leased) -> None:
        drive(self._settle(held))
        close = getattr(self._io.db, "close_thread", None)
        if close is not None:
            close()

    def _wake(self) -> None:
        with suppress(OSError):  # it is full, or `run` has ended
            self._waker.send(b"x")


class _OpenEar:
    """The connection of LISTEN, while there is one."""

    def __init__(self, worker: Worker, selector: selectors.BaseSelector) -> None:
        self._worker, self._selector = worker, selector
        self._stack = ExitStack()
        self._ear: Ear | None = None

    def __enter__(self) -> _OpenEar:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception), self._stack:
            if self._ear is not None:
                self._selector.unregister(self._ear)
                self._ear = None

    def open(self) -> None:
        worker = self._worker
        if now() < worker._next_listen:
            return
        try:
            self._ear = self._stack.enter_context(listen(worker._io.db, worker._options.channel or "", worker._settings.database_timeout))
            self._selector.register(self._ear, selectors.EVENT_READ)
            worker._listens()
        except Exception as error:
            self._fail(error)

    def read(self) -> None:
        try:
            if self._ear is not None and self._ear.heard():
                self._worker._looks_at_once = True
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.__exit__()
        self._worker._is_deaf(error)


class AsyncWorker(_Worker):
    """The same in a loop: each handler is a task. `stop` and `abort` are called in the loop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until `stop` is called. A cancellation is an `abort`: it waits for the handlers."""
        ear = AsyncExitStack()
        try:
            while not self._stopping:
                await self._open(ear)
                if self._is_time():
                    for held in await self._look():
                        task = asyncio.ensure_future(self._settle(held))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._event.wait(), min(self._pause(), 3600))
                self._event.clear()
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
            with suppress(Exception):
                await ear.aclose()

    async def _open(self, ear: AsyncExitStack) -> None:
        if now() < self._next_listen:
            return
        options, within = self._options, self._settings.database_timeout
        try:
            await ear.aclose()
            await ear.enter_async_context(listen_in_loop(self._io.db, options.channel or "", within, self._heard, self._is_cut))
            self._listens()
        except Exception as error:
            self._is_deaf(error)

    def _is_cut(self) -> None:
        if self._next_listen == math.inf:  # not at the end, when we close it
            self._is_deaf(ConnectionError("the connection of LISTEN is lost"))
            self._wake()

    def _wake(self) -> None:
        self._event.set()


def _report(error: BaseException) -> None:
    log.warning("worker: %s", error, exc_info=error)


@overload
def worker(
    db: AsyncDatabase[Tx], scope: str, handler: Callable[[Work[Tx]], Awaitable[Answer | None]], *, size: int = ..., lease: Seconds = ...,
    poll: Seconds = ..., channel: str | None = ..., mode: Mode = ..., holder: str | None = ..., settings: Settings = ...,
    on_error: Callable[[BaseException], None] = ...,
) -> AsyncWorker: ...  # fmt: skip
@overload
def worker(
    db: Database[Tx], scope: str, handler: Callable[[Work[Tx]], Answer | None], *, size: int = ..., lease: Seconds = ...,
    poll: Seconds = ..., channel: str | None = ..., mode: Mode = ..., holder: str | None = ..., settings: Settings = ...,
    on_error: Callable[[BaseException], None] = ...,
) -> Worker: ...  # fmt: skip
def worker(
    db: AnyDatabase[Any], scope: str, handler: Any, *, size: int = 1, lease: Seconds = LEASE_MS / 1000, poll: Seconds = 1.0,
    channel: str | None = None, mode: Mode = "transactional", holder: str | None = None, settings: Settings = Settings(),
    on_error: Callable[[BaseException], None] = _report,
) -> Any:  # fmt: skip
    """A worker for the records of a scope that are due: `worker(...).run()`.

    `size` claims at the same time, each with a `lease`; a look every `poll` seconds, and for each notification of
    `channel`. In mode `transactional` the handler's transaction commits with its result. It returns an Answer, which is
    stored, or nothing. If it raises, or its answer is not to be kept, the record is due again by the scope's policy.
    `on_error` gets the handlers' exceptions and those of a database that is away; by default they are logged.
    """
    options = _Options.of(scope=scope, size=size, lease=lease, poll=poll, channel=channel, mode=mode, holder=holder)
    return (AsyncWorker if io_of(db).is_async else Worker)(db, handler, options, settings, on_error)
