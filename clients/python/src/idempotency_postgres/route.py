"""The common part of all frameworks' middleware; each framework has its own module."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
import math
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, Union, get_args, get_origin, overload

from .claim import Answer, Record, Request
from .contract import ATTEMPTS, DATABASE_TIMEOUT_MS, LEASE_MS, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, PROBLEMS, WINDOW_MS
from .database import AnyDatabase, Tx, io_of, settled
from .errors import AnswerTooLarge, DatabaseAway, HandlerLate, Rejection, is_connection_lost, is_refused_by_jsonb, sqlstate
from .flows import (
    AsyncLeased, Leased, Settings, Transactional, Verdict, keep_by_default, run_leased, run_transactionally, run_unclaimed,
)  # fmt: skip
from .identity import digest, is_json, media_type, not_json, text_of, too_large
from .key import new_key, parse_key, quote_key
from .problem import HttpProblem, Problems

log = logging.getLogger("idempotency_postgres")
T = TypeVar("T")
Req = TypeVar("Req")
Seconds = Union[float, datetime.timedelta]
Kind = Literal["transactional", "leased"]
MissingKey = Literal["refuse", "pass", "generate", "derive"]


@dataclass(frozen=True)
class Event:
    """The argument of hooks."""

    scope: str
    key: str | None
    attempt: int | None
    outcome: str
    """`execute`, `replay`, `lease_lost`, or why it was refused."""


Hook = Callable[[Event], Any]


@dataclass(frozen=True)
class Options(Generic[Req]):
    """The options of a route; times are seconds or timedeltas. `Req` is the framework's request."""

    principal: Callable[[Req], Any]
    """The client that the request comes from, by its authentication. None or empty: 401, and the body is not read."""
    scope: str | None = None
    """The operation, as in policies and statistics. By default method and route: `POST /payments`."""
    methods: Sequence[str] = ("POST", "PATCH")
    """The methods that need a key; others pass."""
    missing_key: MissingKey = "refuse"
    window: Seconds = WINDOW_MS / 1000
    """How long a derived key counts; then the server forgets it."""
    exclude: Sequence[str] = ()
    """Fields of the JSON body that may differ in repeats."""
    fingerprint: Callable[[Req, bytes], Any] | None = None
    """Bytes to hash instead of method, target and body."""
    ttl: Seconds | None = None
    lease: Seconds = LEASE_MS / 1000
    wait: Seconds | None = None
    keep: Callable[[int], bool] = keep_by_default
    """Whether an answer with this status is stored and replayed."""
    verdict: Callable[[Answer], Verdict | None] | None = None
    """Decides about one answer instead of `keep`; None leaves the decision to it."""
    handler_timeout: Seconds | None = None
    """The time that the handler may take: then 503, and the claim ends as after an exception. 60 s, leased 10 minutes."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Other statuses of refusals, by outcome."""
    key_header: str = "Idempotency-Key"
    replay_header: str = "Idempotent-Replayed"
    echo_key: bool = False
    max_request_bytes: int = MAX_REQUEST_BYTES
    max_answer_bytes: int = MAX_ANSWER_BYTES
    omit_large_answers: bool = False
    attempts: int = ATTEMPTS
    database_timeout: Seconds = DATABASE_TIMEOUT_MS / 1000
    unprotected_without_database: bool = False
    """Runs requests while the database is away, without protection."""
    on_execute: Hook | None = None
    on_replay: Hook | None = None
    on_refusal: Hook | None = None
    on_lease_lost: Hook | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, datetime.timedelta):
                value = value.total_seconds()
                object.__setattr__(self, one.name, value)
            fits, wanted = CHECKS[one.name]
            if not fits(value) and not (value is None and one.default is None):
                raise TypeError(f"idempotency: `{one.name}` has to be {wanted}")


def _is_number(value: Any, least: float = 0) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < math.inf


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in value)


def _are_methods(value: Any) -> bool:
    """Others would switch the protection off."""
    return _is_texts(value) and len(value) > 0 and all(re.fullmatch("[A-Z-]+", one) for one in value)


def _are_statuses(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        word in PROBLEMS and isinstance(status, int) and 400 <= status <= 599 for word, status in value.items()
    )


_Check = tuple[Callable[[Any], bool], str]
_SECONDS: _Check = (lambda value: _is_number(value) and value > 0, "seconds above 0, or a timedelta")
_CALL: _Check = (callable, "a function")
_FLAG: _Check = (lambda value: isinstance(value, bool), "True or False")
_TEXTS: _Check = (_is_texts, "a list of strings")
_HEADER: _Check = (
    lambda value: isinstance(value, str) and re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", value) is not None, "the name of a header field",
)  # fmt: skip
_COUNT: _Check = (lambda value: isinstance(value, int) and _is_number(value), "a whole number of at least 0")
CHECKS: dict[str, _Check] = {
    "principal": (callable, "a function of the request"),
    "scope": (lambda value: isinstance(value, str) and value != "", "a string"),
    "methods": (_are_methods, "a list of methods in upper case"),
    "exclude": _TEXTS,
    "missing_key": (lambda value: value in get_args(MissingKey), "one of " + ", ".join(get_args(MissingKey))),
    "window": _SECONDS, "ttl": _SECONDS, "lease": _SECONDS, "database_timeout": _SECONDS, "handler_timeout": _SECONDS,
    "wait": (_is_number, "seconds, or a timedelta"),
    "attempts": (lambda value: isinstance(value, int) and _is_number(value, 1), "a whole number of at least 1"),
    "max_request_bytes": _COUNT, "max_answer_bytes": _COUNT,
    "fingerprint": _CALL, "keep": _CALL, "verdict": _CALL,
    "on_execute": _CALL, "on_replay": _CALL, "on_refusal": _CALL, "on_lease_lost": _CALL,
    "statuses": (_are_statuses, f"a mapping of statuses from 400 to 599 by outcome ({', '.join(PROBLEMS)})"),
    "key_header": _HEADER, "replay_header": _HEADER,
    "echo_key": _FLAG, "omit_large_answers": _FLAG, "unprotected_without_database": _FLAG,
}  # fmt: skip


class RouteOptions(TypedDict, total=False):
    """The options of a route by name, for type checkers; Options describes them."""

    principal: Callable[[Any], Any]
    scope: str | None
    methods: Sequence[str]
    missing_key: MissingKey
    window: Seconds
    exclude: Sequence[str]
    fingerprint: Callable[[Any, bytes], Any] | None
    ttl: Seconds | None
    lease: Seconds
    wait: Seconds | None
    keep: Callable[[int], bool]
    verdict: Callable[[Answer], Verdict | None] | None
    handler_timeout: Seconds | None
    statuses: Mapping[str, int]
    key_header: str
    replay_header: str
    echo_key: bool
    max_request_bytes: int
    max_answer_bytes: int
    omit_large_answers: bool
    attempts: int
    database_timeout: Seconds
    unprotected_without_database: bool
    on_execute: Hook | None
    on_replay: Hook | None
    on_refusal: Hook | None
    on_lease_lost: Hook | None


def options_of(common: RouteOptions, own: RouteOptions) -> Options[Any]:
    merged: dict[str, Any] = {**common, **own}
    unknown = merged.keys() - CHECKS.keys()
    if unknown:
        raise TypeError(f"idempotency: there is no option `{min(unknown)}`. The options are {', '.join(CHECKS)}")
    return Options(**merged)


Context = Union[Transactional[Any], Leased, AsyncLeased]
current: ContextVar[Context | None] = ContextVar("idempotency", default=None)


C = TypeVar("C")


@overload
def claim() -> Any: ...
@overload
def claim(kind: type[C]) -> C: ...
def claim(kind: Any = None) -> Any:
    """The claim of the current request: a Transactional, a Leased or an AsyncLeased.

    `claim(Transactional[AsyncConnection[Any]])` tells type checkers what it is. It raises TypeError where it is not.
    """
    found = current.get()
    if found is None:
        raise RuntimeError("idempotency: no claim here. The handler was called without its route's protection")
    wanted = get_origin(kind) or kind
    if wanted is not None and not isinstance(found, wanted):
        raise TypeError(f"idempotency: the claim of this route is a {type(found).__name__}, not a {wanted.__name__}")
    return found


class Exchange(Protocol):
    """A framework's part: the request, and a way to run the handler and catch its answer."""

    request: Any
    method: str
    target: str

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """As received; several fields of one name are several pairs."""
        ...

    def default_scope(self) -> str: ...

    async def read_body(self, limit: int) -> bytes: ...

    async def run(self, body: bytes, limit: int | None) -> Answer:
        """Runs the handler, each time anew; raises AnswerTooLarge if its answer exceeds `limit`."""
        ...


def values_of(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    lower = name.lower()
    return [value for one, value in headers if one.lower() == lower]


@dataclass(frozen=True)
class Reply:
    """The answer to send. `close`: the body was not read, so the connection cannot be reused."""

    answer: Answer
    fields: Sequence[tuple[str, str]] = ()
    close: bool = False

    @property
    def headers(self) -> list[tuple[str, str]]:
        own = {name.lower() for name, _ in self.fields}
        kept = [pair for pair in self.answer.headers if pair[0].lower() not in own]
        return [*kept, *self.fields, *([("Connection", "close")] if self.close else [])]


def with_length(reply: Reply, body: bytes) -> Sequence[tuple[str, str]]:
    """An answer is sent whole, even if the handler sent it in pieces."""
    left = {"content-length", "transfer-encoding", "trailer"}
    headers = [pair for pair in reply.headers if pair[0].lower() not in left]
    if reply.answer.status not in (204, 304):
        headers.append(("Content-Length", str(len(body))))
    return headers


@dataclass(frozen=True)
class _Omitted(Answer):
    """Only its status is stored; the first time, the whole answer is sent."""

    whole: Answer = Answer()


def _whole(answer: Answer | None) -> Answer:
    assert answer is not None
    return answer.whole if isinstance(answer, _Omitted) else answer


def _name_of(principal: Any) -> str:
    """Of any other object, the text may be another one in each request."""
    if isinstance(principal, (str, int)) and not isinstance(principal, bool):
        return str(principal)
    if principal is None or principal is False:
        return ""
    raise TypeError(f"idempotency: `principal` has to return a string or an integer, not {type(principal).__name__}")


class Route(Generic[Req, Tx]):
    """One route's protection; `handle` takes a request and returns the answer."""

    def __init__(self, db: AnyDatabase[Tx], kind: Kind, options: Options[Req]) -> None:
        self.kind, self.options = kind, options
        self._io = io_of(db)
        self._patience: float = options.database_timeout  # type: ignore[assignment]
        self._problems = Problems(self._io, options.statuses, self._patience)
        self._told: set[asyncio.Future[Any]] = set()

    def concerns(self, method: str) -> bool:
        """Whether requests with this method need a key."""
        return method in self.options.methods

    async def handle(self, exchange: Exchange) -> Reply:
        """After an HttpProblem before the body was read, the connection cannot be reused."""
        read = False
        try:
            scope = self.options.scope or exchange.default_scope()
            principal = _name_of(await settled(self.options.principal(exchange.request)))
            if principal == "":
                raise HttpProblem("unauthorized")
            sent = values_of(exchange.headers, self.options.key_header)
            key = parse_key(sent[0]) if len(sent) == 1 else None
            if sent and key is None:
                return await self._refuse("bad_key", scope, None, None, close=True)
            if key is None and self._mode(exchange) == "refuse":
                return await self._refuse("missing_key", scope, None, None, close=True)
            body = await exchange.read_body(self.options.max_request_bytes)
            if len(body) > self.options.max_request_bytes:
                raise too_large()
            read = True
            return await self._with_body(exchange, body, scope, principal, key)
        except HttpProblem as problem:
            return Reply(problem.answer, close=not read)
        except HandlerLate:
            return Reply(HttpProblem("handler_late").answer)

    def _mode(self, exchange: Exchange) -> str:
        return self.options.missing_key if self.concerns(exchange.method) else "pass"

    async def _with_body(self, exchange: Exchange, body: bytes, scope: str, principal: str, sent: str | None) -> Reply:
        mode = self._mode(exchange)
        key = new_key() if sent is None and mode == "generate" else sent
        derive: Any = self.options.window if key is None and mode == "derive" else None
        try:
            request = await self._identity(exchange, body, scope, principal)
            if key is derive is None or not self.concerns(exchange.method):
                return await self._unprotected(exchange, body, scope, principal, key)
            ttl: Any = derive or self.options.ttl
            return await self._claimed(exchange, body, replace(request, key=key, derive=derive, ttl=ttl), ours=sent is None)
        except DatabaseAway:
            return await self._refuse("unavailable", scope, key, 1, ours=sent is None)

    async def _identity(self, exchange: Exchange, body: bytes, scope: str, principal: str) -> Request:
        method, target, options = exchange.method, exchange.target, self.options
        # Many libraries send the type without a body.
        text = text_of(body) if body and is_json(_media_of(exchange)) else None
        fingerprint = None if text is not None else _digest_of(exchange, body)
        if options.fingerprint is not None:
            own = await settled(options.fingerprint(exchange.request, body))
            fingerprint = hashlib.sha256(own.encode() if isinstance(own, str) else own).digest()
        return Request(
            None, scope, principal, json=text, fingerprint=fingerprint, method=method, target=target,
            exclude=options.exclude, wait=options.wait,  # type: ignore[arg-type]
        )  # fmt: skip

    async def _claimed(self, exchange: Exchange, body: bytes, request: Request, ours: bool) -> Reply:
        executed = False  # the handler has begun: what fails is not the request's JSON any more
        options = self.options
        key = request.key  # or the one that the server derives

        def event(record: Record | None, outcome: str) -> Event:
            return Event(request.scope, key, record.attempt if record else None, outcome)

        def on_claim(record: Record) -> None:
            nonlocal executed, key
            executed, key = True, record.key
            self._call(options.on_execute, event(record, "execute"))

        settings = replace(
            self._settings(),
            drop_headers=(options.key_header, options.replay_header),
            lease=options.lease,  # type: ignore[arg-type]
            on_claim=on_claim,
            on_lease_lost=lambda record: self._call(options.on_lease_lost, event(record, "lease_lost"), aside=True),
        )  # fmt: skip
        flow = run_leased if self.kind == "leased" else run_transactionally
        try:
            result = await flow(self._io, request, lambda own: self._answer(exchange, body, own), settings)
        except Exception as error:
            if executed:
                raise
            if request.json is not None and is_refused_by_jsonb(error):
                own = request.fingerprint or _digest_of(exchange, body)
                return await self._claimed(exchange, body, replace(request, json=None, fingerprint=own), ours)
            if options.unprotected_without_database and isinstance(error, DatabaseAway):
                return await self._unprotected(exchange, body, request.scope, request.principal, request.key, away=True)
            raise _of_begin(error) from error
        key = result.record.key if result.record else key
        key_fields = self._key_fields(key, ours)
        if result.outcome in ("executed", "not_kept"):
            return Reply(_whole(result.answer), key_fields)
        if result.outcome in ("replay", "failed"):
            self._call(options.on_replay, event(result.record, "replay"))
            answer = result.answer or await self._problems.answer("failed")
            return Reply(answer, [(options.replay_header, "true"), *key_fields])
        self._call(options.on_refusal, event(result.record, result.outcome))
        retry_after = result.record.retry_after if result.record else None
        return Reply(await self._problems.answer(result.outcome, retry_after), key_fields)

    def _settings(self) -> Settings:
        options = self.options
        return Settings(
            attempts=options.attempts, database_timeout=self._patience, keep=options.keep, verdict=options.verdict or (lambda answer: None),
            handler_timeout=options.handler_timeout,  # type: ignore[arg-type]
        )  # fmt: skip

    async def _unprotected(
        self, exchange: Exchange, body: bytes, scope: str, principal: str, key: str | None, away: bool = False
    ) -> Reply:
        try:
            answer = await self._without_claim(exchange, body, scope, principal, key, away)
        except Rejection as rejection:
            answer = rejection.answer
        return Reply(_whole(answer), self._key_fields(key, False))

    async def _without_claim(self, exchange: Exchange, body: bytes, scope: str, principal: str, key: str | None, away: bool) -> Answer:
        bare = Transactional(None, key, scope, principal, protected=False)
        if self.kind == "leased":
            async def step(name: str, work: Callable[[], Any]) -> Any:
                return await settled(work())

            async def unknown(error: str | None, reference: str | None) -> None:
                pass

            kind = AsyncLeased if self._io.is_async else Leased
            own = kind(key, scope, principal, 1, None, {}, threading.Event(), step, unknown, protected=False)
            return await self._answer(exchange, body, own)
        if away:
            return await self._answer(exchange, body, bare)
        return await run_unclaimed(self._io, bare, lambda own: self._answer(exchange, body, own), self._settings())

    async def _answer(self, exchange: Exchange, body: bytes, own: Context) -> Answer:
        limit = self.options.max_answer_bytes
        reset = current.set(own)
        try:
            answer = await exchange.run(body, None if self.options.omit_large_answers else limit)
        finally:
            current.reset(reset)
        if len(answer.body or b"") <= limit:
            return answer
        if not self.options.omit_large_answers:
            raise AnswerTooLarge(f"the answer has more than {limit} bytes")
        return _Omitted(answer.status, [("Idempotent-Body", "omitted")], None, answer.raised, answer)

    async def _refuse(
        self, word: str, scope: str, key: str | None, retry_after: float | None, close: bool = False, ours: bool = False
    ) -> Reply:
        self._call(self.options.on_refusal, Event(scope, key, None, word))
        return Reply(await self._problems.answer(word, retry_after), self._key_fields(key, ours), close)

    def _key_fields(self, key: str | None, ours: bool) -> list[tuple[str, str]]:
        if key is None or not (ours or self.options.echo_key):
            return []
        return [(self.options.key_header, quote_key(key))]

    def _call(self, hook: Hook | None, event: Event, aside: bool = False) -> None:
        """A hook's exception does not affect the request. `aside`: the caller's thread is not the request's."""
        if hook is None:
            return
        if aside and not self._io.is_async:
            threading.Thread(target=self._call, args=(hook, event), daemon=True).start()
            return
        try:
            result = hook(event)
            if hasattr(result, "__await__"):
                told = asyncio.ensure_future(_logged(result))
                self._told.add(told)
                told.add_done_callback(self._told.discard)
        except Exception:
            log.exception("a hook has failed")


async def _logged(result: Awaitable[Any]) -> None:
    try:
        await result
    except Exception:
        log.exception("a hook has failed")


def _media_of(exchange: Exchange) -> str | None:
    return media_type(", ".join(values_of(exchange.headers, "Content-Type")))


def _digest_of(exchange: Exchange, body: bytes) -> bytes:
    return digest(exchange.method, exchange.target, ", ".join(values_of(exchange.headers, "Content-Type")), body)


def _of_begin(error: Exception) -> Exception:
    """The errors of idem_begin about a body that claims to be JSON."""
    state = sqlstate(error)
    if state in ("54000", "54001"):
        return HttpProblem("body_too_large", "The body is too large, or nested too deeply.")
    if state in ("22P02", "22021", "22032", "22030"):
        return not_json()
    if is_connection_lost(error) and not isinstance(error, DatabaseAway):
        return DatabaseAway("the database is away")
    return error


def bearer_token(headers: Sequence[tuple[str, str]]) -> str | None:
    """The token of the one field `Authorization: Bearer TOKEN`; None if there is none, or two."""
    sent = values_of(headers, "Authorization")
    match = re.fullmatch(r"[ \t]*bearer +([A-Za-z0-9._~+/-]+=*)[ \t]*", sent[0], re.I) if len(sent) == 1 else None
    return match[1] if match else None
