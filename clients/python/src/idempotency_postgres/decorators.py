"""Functions that take effect once per key, and handlers of messages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, TypeVar

from .claim import Answer, Request
from .database import is_async
from .flows import Result, Settings, leased, once, transactionally

F = TypeVar("F", bound=Callable[..., Any])


class Refused(Exception):
    """The function was not run, and there is no result; `outcome` gives the reason."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.outcome)
        self.outcome = result.outcome
        self.retry_after = result.record.retry_after if result.record else None


def idempotent(
    db: Any, *, key: Callable[..., str], scope: str | None = None, principal: Callable[..., str] = lambda *_, **__: "",
    lease: float | None = None, ttl: float | None = None, settings: Settings = Settings(),
) -> Callable[[F], Callable[..., Any]]:  # fmt: skip
    """`def f(claim, *args)` becomes `f(*args)`, run once per key; what it returned, a value of JSON, is kept.

    Its arguments, as JSON, are the request: the same key with others is refused (`mismatch`). With `lease`
    the claim is a leased one, else `claim.client` is the transaction. Raises Refused.
    """

    def decorator(function: F) -> Callable[..., Any]:
        name = scope or f"{function.__module__}.{function.__qualname__}"
        own = settings if lease is None else Settings(**{**vars(settings), "lease": lease})
        flow: Any = transactionally if lease is None else leased

        def request(args: Any, kwargs: Any) -> Request:
            content = json.dumps([args, kwargs], default=str)
            return Request(key(*args, **kwargs), name, principal(*args, **kwargs), json=content, ttl=ttl)

        if is_async(db):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                async def work(claim: Any) -> Answer:
                    return _answer(await function(claim, *args, **kwargs))

                return _value(await flow(db, request(args, kwargs), work, own))

            return call

        @functools.wraps(function)
        def call_blocking(*args: Any, **kwargs: Any) -> Any:
            work = lambda claim: _answer(function(claim, *args, **kwargs))  # noqa: E731
            return _value(flow(db, request(args, kwargs), work, own))

        return call_blocking

    return decorator


def _answer(value: Any) -> Answer:
    return Answer(200, [("Content-Type", "application/json")], json.dumps(value).encode())


def _value(result: Result) -> Any:
    if result.answer is None or result.answer.body is None:
        raise Refused(result)
    return json.loads(result.answer.body)


def exactly_once(
    db: Any, *, key: Callable[[Any], str], scope: str | None = None, settings: Settings = Settings()
) -> Callable[[F], Callable[[Any], Any]]:
    """`def handle(tx, message)` becomes `handle(message)`: applied once per key, in one transaction with the
    note that it was. True if now, False if before; acknowledge the message either way."""

    def decorator(function: F) -> Callable[[Any], Any]:
        name = scope or f"{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def call(message: Any) -> Any:
            return once(db, key(message), lambda tx: function(tx, message), scope=name, settings=settings)

        return call

    return decorator
