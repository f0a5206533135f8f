"""The three ways to execute a request once, without HTTP.

Callers never complete a claim themselves: work returns its answer, or raises, and the function ends the claim,
once.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, Union, overload

from .claim import Answer, Record, Request, stored_headers
from .contract import (
    ATTEMPTS, BEGIN, CHECKPOINT, COMPLETE, DATABASE_TIMEOUT_MS, EXTEND, FAIL, HANDLER_TIMEOUT_MS, LEASE_MS, LEASED_HANDLER_TIMEOUT_MS,
    NOT_KEPT, ONCE, UNKNOWN,
)  # fmt: skip
from .database import AnyDatabase, AsyncDatabase, Database, Io, Statement, Tx, drive, io_of, settled
from .deadline import Deadline
from .errors import (
    DatabaseAway, DatabaseLate, HandlerLate, InDoubt, LeaseLost, NothingHappened, Rejection, Unprepared, is_connection_lost, is_lost,
    is_transient, sqlstate,
)  # fmt: skip
from .heartbeat import Heartbeat, TaskHeartbeat, ThreadHeartbeat, now
from .statements import CHECK, Value, milliseconds, text_array

T = TypeVar("T")
Verdict = Literal["keep", "free", "unknown"]
"""`keep`: stored and replayed. `free`: the key is free for the next. `unknown`: an operator decides."""
HANDLER_TIMEOUT = HANDLER_TIMEOUT_MS / 1000
LEASED_HANDLER_TIMEOUT = LEASED_HANDLER_TIMEOUT_MS / 1000
Refusal = Literal["in_progress", "mismatch", "expired", "retry_later", "exhausted", "unknown"]


@dataclass(frozen=True)
class Result:
    """The result of a request."""

    outcome: str
    """`executed`, `replay`, `not_kept`, `failed` (a record without an answer), or why it was refused."""
    answer: Answer | None = None
    record: Record | None = None


def keep_by_default(status: int) -> bool:
    """All statuses except those that another attempt may cure, and server faults."""
    return status < 500 and status not in NOT_KEPT


@dataclass(frozen=True)
class Settings:
    attempts: int = ATTEMPTS
    database_timeout: float = DATABASE_TIMEOUT_MS / 1000
    keep: Callable[[int], bool] = keep_by_default
    verdict: Callable[[Answer], Verdict | None] = lambda answer: None
    """Decides instead of `keep`; None leaves the decision to it."""
    handler_timeout: float | None = None
    """The time that the work may take; then it is given up. By default 60 s, leased 10 minutes."""
    drop_headers: tuple[str, ...] = ()
    lease: float = LEASE_MS / 1000
    on_claim: Callable[[Record], None] = lambda record: None
    on_lease_lost: Callable[[Record], None] = lambda record: None


@dataclass(frozen=True)
class Transactional(Generic[Tx]):
    """The work's view of a claim in its transaction."""

    client: Tx
    """The transaction that holds the claim: the adapter's connection or session."""
    key: str | None
    scope: str
    principal: str
    attempt: int = 1
    protected: bool = True
    """False if it runs without a claim, by the route's options."""
    kind: str = "transactional"


@dataclass(frozen=True)
class _LeasedClaim:
    key: str | None
    scope: str
    principal: str
    attempt: int
    """1 for the first, plus one for each attempt after a failure or a crash."""
    recovery_point: str | None
    """The name of the last step that an attempt has done."""
    state: Mapping[str, Any]
    """The results of the steps that are done, by name."""
    lost: threading.Event
    """Set when the lease is lost or may have expired: the work must stop."""
    _step: Callable[[str, Callable[[], Any]], Any] = field(repr=False)
    _unknown: Callable[[str | None, str | None], Any] = field(repr=False)
    protected: bool = True
    kind: str = "leased"

    def check(self) -> None:
        """Raises LeaseLost if the work must stop."""
        if self.lost.is_set():
            raise LeaseLost("the claim is lost: nothing more may be done")


class Leased(_LeasedClaim):
    """The work's view of a leased claim, in a thread."""

    def step(self, name: str, work: Callable[[], T]) -> T:
        """Does a part of the work, and notes that it is done, with its result, a value of JSON.

        A later attempt gets the result, and does not repeat the part. A crash between work and note repeats it:
        a service that it calls needs a key, too; derive one from this claim's.
        """
        return drive(self._step(name, work))

    def unknown(self, error: str | None = None, reference: str | None = None) -> None:
        """Ends the claim: it is not known whether the work had its effect.

        Repeats get `unknown` until an operator decides. `reference` is the provider's name for the attempt. The
        work's answer is still sent, but not stored. Only the first call counts.
        """
        drive(self._unknown(error, reference))


class AsyncLeased(_LeasedClaim):
    """The same in a task, which is cancelled when the lease is lost."""

    async def step(self, name: str, work: Callable[[], Awaitable[T] | T]) -> T:
        return await self._step(name, work)

    async def unknown(self, error: str | None = None, reference: str | None = None) -> None:
        await self._unknown(error, reference)


# ---- transactional ----


class _NotKept(Exception):
    """Carries an answer out of a transaction that is rolled back."""

    def __init__(self, result: Result) -> None:
        self.result = result


class _Undone(Exception):
    """Likewise, one that may be kept although its work is not."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class _Thrown(Exception):
    """Tells exceptions of the work from those of our own statements."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _OwnTransaction(Exception):
    """We have lost its connection; the server may notice later than we do."""


@dataclass
class _Attempt:
    lost: bool
    """An earlier try has lost its connection."""
    last: bool


TransactionalWork = Callable[[Transactional[Tx]], Union[Answer, Awaitable[Answer]]]
AnswerOf = Callable[["_Transaction[Tx]", Record], Awaitable[Answer]]


async def run_transactionally(io: Io[Tx], request: Request, work: TransactionalWork[Tx], settings: Settings) -> Result:
    async def perform(own: _Transaction[Tx], record: Record) -> Answer:
        own.deadline.pause()  # the hook may take longer than the database
        settings.on_claim(record)
        claim = Transactional(own.tx, record.key, request.scope, request.principal, record.attempt or 1)
        answer = await own.answer(work, claim)
        if answer.raised:
            raise _Undone(answer)
        return answer

    async def keep(own: _Transaction[Tx], record: Record) -> Answer:
        return undone

    try:
        return await _claimed(io, request, settings, perform)
    except _Undone as end:
        undone = end.answer
    if _verdict_on(undone, settings) not in ("keep", "unknown"):
        return Result("not_kept", undone)
    # Its work is rolled back. If another request has claimed the key meanwhile, its answer counts.
    return await _claimed(io, request, settings, keep)


async def _claimed(io: Io[Tx], request: Request, settings: Settings, answer_of: AnswerOf[Tx]) -> Result:
    first = _beginning(request, None)

    async def call(attempt: _Attempt) -> Result:
        # A duplicate waits within the first statement.
        async with _Transaction(io, settings, first, request.wait or 0) as own:
            record = Record.of(own.rows[0])
            own.deadline.check()  # the caller has stopped waiting: the work must not be done
            if record.outcome == "in_progress" and attempt.lost and not attempt.last:
                raise _OwnTransaction
            if record.outcome != "execute":
                return _refusal_or_replay(record)
            answer = await answer_of(own, record)
            verdict = _verdict_on(answer, settings)
            if verdict == "keep":
                own.end_with(_completion(request, record, answer, settings))
                return Result("executed", answer, record)
            if verdict == "unknown":
                own.end_with(_unknown(request, record, f"status {answer.status}"))
                return Result("not_kept", answer, record)
            raise _NotKept(Result("not_kept", answer, record))

    return await _again(io, settings, call)


def _verdict_on(answer: Answer | None, settings: Settings) -> str:
    """`by_status`: the route has no opinion, and its status says that it is not to be kept."""
    if answer is None:  # of a worker
        return "keep"
    by_status = settings.keep(answer.status) and not (answer.raised and answer.status >= 500)
    word = settings.verdict(answer) or ("keep" if by_status else "by_status")
    # An unknown one would be a success to the caller, although its work is rolled back.
    if word in ("keep", "free", "unknown", "by_status"):
        return word
    raise TypeError("idempotency: `verdict` has to return 'keep', 'free', 'unknown' or None")


async def run_once(io: Io[Tx], request: Request, work: Callable[[Tx], Any], settings: Settings) -> bool:
    first: Statement = (ONCE, [request.key, request.scope, request.principal])

    async def call(_: _Attempt) -> bool:
        async with _Transaction(io, settings, first) as own:
            own.deadline.check()
            if own.rows[0]["first"]:
                await own.let(work, own.tx)
                own.end_with((CHECK, []))
            return bool(own.rows[0]["first"])

    return await _again(io, settings, call)


async def run_unclaimed(io: Io[Tx], claim: Transactional[Any], work: TransactionalWork[Tx], settings: Settings) -> Answer:
    """Work in a transaction without a claim, with the same deadlines and retries, except after a COMMIT without
    an answer.
    """

    async def call(_: _Attempt) -> Result:
        done = False
        try:
            async with _Transaction(io, settings, None) as own:
                answer = await own.answer(work, replace(claim, client=own.tx))
                if answer.raised or _verdict_on(answer, settings) not in ("keep", "unknown"):
                    raise _NotKept(Result("not_kept", answer))
                own.end_with((CHECK, []))
                done = True
                return Result("executed", answer)
        except Exception as error:
            if done and is_connection_lost(error):
                raise InDoubt("it is not known whether the transaction committed") from error
            raise

    answer = (await _again(io, settings, call)).answer
    assert answer is not None
    return answer


class _Transaction(Generic[Tx]):
    """A transaction of the database; the work's own time does not count."""

    def __init__(self, io: Io[Tx], settings: Settings, first: Statement | None, patience: float = 0) -> None:
        self.deadline = Deadline(settings.database_timeout, io.after)
        self._io, self._settings, self._patience = io, settings, patience
        self._manager = io.transaction(self.deadline, first)

    async def __aenter__(self) -> _Transaction[Tx]:
        self.deadline.start(self.deadline.limit + self._patience)
        try:
            self._open = await self._manager.__aenter__()
        except BaseException as error:
            self._end(error)
            raise
        self.tx, self.rows = self._open.tx, self._open.rows
        self.deadline.start()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.deadline.start()  # for COMMIT or ROLLBACK
        try:
            await self._manager.__aexit__(*raised)
        except BaseException as error:
            if isinstance(raised[1], _Thrown) and isinstance(raised[1].error, HandlerLate):
                raise raised[1] from error  # its connection was closed for it
            self._end(error)
            raise
        self._end(raised[1])

    def end_with(self, last: Statement) -> None:
        """Runs it, and COMMIT."""
        self._open.last = last

    def _end(self, error: BaseException | None) -> None:
        self.deadline.stop()
        if isinstance(error, Exception) and not isinstance(error, (_Thrown, _NotKept, _Undone)) and self.deadline.over:
            raise self.deadline.error from error

    async def answer(self, work: Callable[..., Any], argument: Any) -> Answer:
        """Of the work, or of its rejection."""
        limit = self._settings.handler_timeout
        try:
            return await self.let(work, argument, HANDLER_TIMEOUT if limit is None else limit)  # type: ignore[no-any-return]
        except _Thrown as thrown:
            if isinstance(thrown.error, Rejection):
                return replace(thrown.error.answer, raised=True)
            raise

    async def let(self, work: Callable[..., Any], argument: Any, limit: float = math.inf) -> Any:
        self.deadline.pause()
        if limit < math.inf and not self._io.is_async:
            self.deadline.start(limit)  # a thread cannot be stopped, but its connection is closed
        try:
            result = await _within(self._io, lambda: settled(work(argument)), limit, self._open.gone)
            if self._open.gone() and not self.deadline.expired:
                raise _ConnectionGone("the connection is lost")
        except _ConnectionGone:
            self.deadline.start()
            await self._io.query(self.tx, CHECK, [])  # raises the reason
            raise
        except Exception as error:
            if not self._io.is_async and self.deadline.expired:
                raise _Thrown(_late(limit)) from error
            raise _Thrown(error) from error
        finally:
            self._open.work_is_over()
        if not self._io.is_async and self.deadline.expired:
            raise _Thrown(_late(limit))
        self.deadline.start()
        return result


class _ConnectionGone(DatabaseAway):
    """It has ended while the work was waiting for something else."""


def _late(limit: float) -> HandlerLate:
    return HandlerLate(f"the handler did not answer within {limit} s")


LOOK = 0.25  # seconds between two looks at an idle connection


async def _within(io: Io[Any], work: Callable[[], Awaitable[T]], limit: float, gone: Callable[[], bool] = lambda: False) -> T:
    """Work that outlives neither its time nor its connection."""
    end = now() + limit
    if not io.is_async:
        result = await work()
        if now() >= end:
            raise _late(limit)
        return result
    task: asyncio.Task[T] = asyncio.ensure_future(work())  # type: ignore[assignment]
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=min(LOOK, max(0, end - now())))
            if not task.done() and (gone() or now() >= end):
                await _stop(task)
                raise _ConnectionGone("the connection is lost") if now() < end else _late(limit)
        return task.result()
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})  # it may have something to put in order
        raise


async def _stop(task: asyncio.Task[Any]) -> None:
    """It may catch its cancellation, but is not waited for then."""
    task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception() and None)  # looked at
    task.cancel()
    await asyncio.wait({task}, timeout=1)


async def _again(io: Io[Any], settings: Settings, call: Callable[[_Attempt], Awaitable[T]]) -> T:
    """Repeats all of it after a conflict or a lost connection.

    Also after a COMMIT without an answer: the same key gets `replay` if it was committed, `execute` if not.
    """
    late = attempt = 0
    lost = False
    while True:
        attempt += 1
        try:
            return await call(_Attempt(lost, attempt >= settings.attempts))
        except _NotKept as end:
            return end.result  # type: ignore[return-value]
        except Unprepared:  # the next run prepares nothing
            attempt -= 1
            continue
        except (InDoubt, _Undone):
            raise
        except Exception as caught:
            raised = caught
        cause = raised.error if isinstance(raised, _Thrown) else raised
        if not isinstance(cause, _OwnTransaction) and not is_transient(cause, from_handler=isinstance(raised, _Thrown)):
            raise cause
        lost = lost or not (sqlstate(cause) or "").startswith("40")
        # Each of these has used the whole time; a second one asks for the result of a COMMIT.
        late += isinstance(raised, DatabaseLate)
        if attempt >= settings.attempts or late == 2:
            raise DatabaseAway("the database could not do it") from cause
        await io.pause(0.02 * 2 ** (attempt - 1) * (0.5 + random.random()))


# ---- leased ----

LeasedWork = Callable[[Any], Union[Answer, Awaitable[Answer]]]


async def run_leased(io: Io[Tx], request: Request, work: LeasedWork, settings: Settings) -> Result:
    sent = 0.0

    async def claim(_: _Attempt) -> Record:
        nonlocal sent
        sent = now()
        within = settings.database_timeout + (request.wait or 0)
        (row,) = await io.statement(within, *_beginning(request, settings.lease))
        return Record.of(row)

    record = await _again(io, settings, claim)
    if record.outcome != "execute":
        return _refusal_or_replay(record)

    def told(claim: Any) -> Answer | Awaitable[Answer]:
        settings.on_claim(record)  # while the lease is prolonged
        return work(claim)

    return await _Held(io, request, record, settings, sent).settle(told)


class _Held:
    """A claim with a lease, from its grant to its end."""

    def __init__(self, io: Io[Any], request: Request, record: Record, settings: Settings, sent: float) -> None:
        self._io, self._request, self._record, self._settings = io, request, record, settings
        self._name: list[Value] = [request.scope, request.principal]
        self._token = str(record.token)
        self._unknown = False
        self._state: dict[str, Any] = dict(record.state or {})
        # A note contains all steps, so an older one must not overwrite a newer one.
        self._noting = asyncio.Lock() if io.is_async else threading.Lock()
        extend: list[Value] = [record.key, self._token, *self._name]
        self._heart = _heartbeat(io)(
            settings.lease, sent, io.after,
            lambda within: io.statement(min(settings.database_timeout, within), EXTEND, extend),
            lambda: settings.on_lease_lost(record),
        )  # fmt: skip

    async def settle(self, work: LeasedWork) -> Result:
        """Does the work, and ends the claim by its result."""
        lost = Result("in_progress")
        try:
            limit = self._settings.handler_timeout
            limit = LEASED_HANDLER_TIMEOUT if limit is None else limit
            answer = await self._heart.run(lambda: _within(self._io, lambda: settled(work(self._handle())), limit))
        except Rejection as rejection:
            answer = rejection.answer
        except BaseException as error:
            if self._unknown:
                raise
            if self._is_lost() and isinstance(error, (Exception, asyncio.CancelledError)):
                return lost
            if not await self._failed(error):
                return lost
            raise
        if self._unknown:
            return Result("not_kept", answer, self._record)
        if self._is_lost():
            return lost
        try:
            verdict = _verdict_on(answer, self._settings)
        except Exception as error:
            await self._failed(error)
            raise
        if verdict != "keep":
            return Result("not_kept", answer, self._record) if await self._leave(verdict, f"status {answer.status}") else lost
        return Result("executed", answer, self._record) if await self._complete(answer) else lost

    async def _failed(self, error: BaseException) -> bool:
        """False if the claim is lost. The caller learns of the work's failure even if it cannot be recorded."""
        try:
            return await self._fail(str(error) or type(error).__name__, not isinstance(error, NothingHappened))
        except Exception:
            return True

    def _is_lost(self) -> bool:
        return self._heart.lost.is_set()

    async def _complete(self, answer: Answer | None) -> bool:
        try:
            kept = await self._end(*_completion(self._request, self._record, answer, self._settings))
        except DatabaseAway:
            raise
        except Exception as error:
            # The answer cannot be kept, but the work is done.
            try:
                await self._fail(f"the answer can't be stored: {error}")
            except Exception:
                pass
            raise
        if not kept:
            self._settings.on_lease_lost(self._record)
        return kept

    async def _leave(self, verdict: str, reason: str) -> bool:
        """Without an answer."""
        if verdict == "unknown":
            return await self._end(*_unknown(self._request, self._record, reason))
        return await self._fail(reason, verdict != "free")

    async def _fail(self, reason: str, uncertain: bool = True) -> bool:
        """`uncertain`: the work may have had effects."""
        return await self._end(FAIL, [self._record.key, _text(reason), *self._name, self._token, _boolean(uncertain)])

    async def _end(self, text: str, values: Sequence[Value]) -> bool:
        """False if the claim is lost."""
        try:
            await self._repeated(text, values)
        except Exception as error:
            if is_lost(error):
                return False
            raise
        return True

    async def _repeated(self, text: str, values: Sequence[Value]) -> None:
        limit = self._settings.database_timeout
        await _again(self._io, self._settings, lambda _: self._io.statement(limit, text, values))

    def _handle(self) -> _LeasedClaim:
        """The argument of the work."""
        record, request = self._record, self._request
        return (AsyncLeased if self._io.is_async else Leased)(
            record.key, request.scope, request.principal, record.attempt or 1, record.recovery_point, self._state,
            self._heart.lost, self._step, self._end_as_unknown,
        )  # fmt: skip

    async def _end_as_unknown(self, error: str | None, reference: str | None) -> None:
        if self._unknown:
            return
        end = _unknown(self._request, self._record, error, reference)
        await self._held_still(lambda: self._repeated(*end))
        self._unknown = True
        self._heart.stop()

    async def _step(self, name: str, work: Callable[[], Any]) -> Any:
        if name in self._state:
            return self._state[name]
        if self._unknown:
            raise RuntimeError("idempotency: the claim has ended as unknown")
        self._heart.check()
        result = await settled(work())
        if isinstance(self._noting, asyncio.Lock):
            async with self._noting:
                await self._held_still(lambda: self._note(name, result))
        else:
            with self._noting:
                await self._held_still(lambda: self._note(name, result))
        return result

    async def _note(self, name: str, result: Any) -> None:
        following = json.dumps({**self._state, name: result})

        async def checkpoint(_: _Attempt) -> None:
            sent = now()
            values: list[Value] = [self._record.key, name, following, *self._name, self._token]
            await self._io.statement(self._settings.database_timeout, CHECKPOINT, values)
            self._heart.succeeded(sent)

        await _again(self._io, self._settings, checkpoint)
        self._state[name] = result

    async def _held_still(self, call: Callable[[], Awaitable[None]]) -> None:
        """Tells the work to stop if the server reports the claim as lost."""
        try:
            await call()
        except Exception as error:
            if is_lost(error):
                self._heart.lose(error)
                self._heart.check()
            raise


def _heartbeat(io: Io[Any]) -> Callable[..., Heartbeat]:
    if io.is_async:
        return TaskHeartbeat

    def make(*arguments: Any) -> Heartbeat:
        heart = ThreadHeartbeat(*arguments)
        heart.at_end = getattr(io.db, "close_thread", None)  # of a driver that has a connection for each thread
        return heart

    return make


def _text(value: str | None) -> Value:
    """A text of PostgreSQL holds neither NUL nor lone surrogates."""
    return None if value is None else value.replace("\0", "").encode(errors="replace").decode()


# ---- shared by both ----


def _beginning(request: Request, lease: float | None) -> Statement:
    if request.key is None and not request.derive:
        # A key generated by the server would change if the statement is repeated.
        raise TypeError("idempotency: a request needs `key` or `derive`")
    return BEGIN, [
        request.key, request.json, request.fingerprint, request.method, request.target, text_array(request.exclude),
        request.scope, request.principal, milliseconds(request.ttl), milliseconds(lease), milliseconds(request.wait),
        request.holder, _boolean(lease is None), milliseconds(request.derive),
    ]  # fmt: skip


def _boolean(value: bool) -> Value:
    return "true" if value else "false"


def _completion(request: Request, record: Record, answer: Answer | None, settings: Settings) -> Statement:
    if answer is None:
        return COMPLETE, [record.key, None, None, None, request.scope, request.principal, _number(record)]
    headers = stored_headers(answer.headers, settings.drop_headers)
    return COMPLETE, [record.key, str(answer.status), answer.body, headers, request.scope, request.principal, _number(record)]


def _unknown(request: Request, record: Record, error: str | None, reference: str | None = None) -> Statement:
    return UNKNOWN, [record.key, _text(error), _text(reference), request.scope, request.principal, _number(record)]


def _number(record: Record) -> Value:
    return None if record.token is None else str(record.token)


def _refusal_or_replay(record: Record) -> Result:
    if record.outcome != "replay":
        return Result(record.outcome, None, record)
    answer = record.replay()
    return Result("failed" if answer is None else "replay", answer, record)


# ---- public functions ----


@overload
def transactionally(
    db: AsyncDatabase[Tx], request: Request, work: Callable[[Transactional[Tx]], Awaitable[Answer]], settings: Settings = ...
) -> Awaitable[Result]: ...
@overload
def transactionally(
    db: Database[Tx], request: Request, work: Callable[[Transactional[Tx]], Answer], settings: Settings = ...
) -> Result: ...
def transactionally(db: AnyDatabase[Any], request: Request, work: Any, settings: Settings = Settings()) -> Any:
    """Claim, work and answer in one transaction.

    If `work` raises, or its answer is not to be kept, everything rolls back, and the key is free. With an
    asynchronous database, `work` is asynchronous, and so is this.
    """
    return _called(db, lambda io: run_transactionally(io, request, work, settings))


@overload
def leased(
    db: AsyncDatabase[Any], request: Request, work: Callable[[AsyncLeased], Awaitable[Answer]], settings: Settings = ...
) -> Awaitable[Result]: ...
@overload
def leased(db: Database[Any], request: Request, work: Callable[[Leased], Answer], settings: Settings = ...) -> Result: ...
def leased(db: AnyDatabase[Any], request: Request, work: Any, settings: Settings = Settings()) -> Any:
    """The claim is committed first, and the answer with its token afterwards.

    An answer that is not to be kept, and an exception other than NothingHappened, leave the outcome open: the
    scope's policy says whether the request may be tried again.
    """
    return _called(db, lambda io: run_leased(io, request, work, settings))


@overload
def once(
    db: AsyncDatabase[Tx], key: str, work: Callable[[Tx], Awaitable[object]], *, scope: str = ..., principal: str = ...,
    settings: Settings = ...,
) -> Awaitable[bool]: ...  # fmt: skip
@overload
def once(
    db: Database[Tx], key: str, work: Callable[[Tx], object], *, scope: str = ..., principal: str = ...,
    settings: Settings = ...,
) -> bool: ...  # fmt: skip
def once(
    db: AnyDatabase[Any], key: str, work: Any, *, scope: str = "messages", principal: str = "", settings: Settings = Settings()
) -> Any:
    """A message: applied once, in one transaction with the note that it was. True if now."""
    return _called(db, lambda io: run_once(io, Request(key, scope, principal), work, settings))


def _called(db: AnyDatabase[Any], flow: Callable[[Io[Any]], Any]) -> Any:
    io = io_of(db)
    return flow(io) if io.is_async else drive(flow(io))
