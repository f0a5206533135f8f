"""For those who call a service with idempotency keys: one key for all sendings of a request, until its answer is final.

Works with the responses of httpx and requests: `status_code`, `headers` and `json()`.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .key import new_key, quote_key

__all__ = ["NotFinal", "Pauses", "acall", "call", "is_final", "new_key"]


class Response(Protocol):
    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    def json(self) -> Any: ...


R = TypeVar("R", bound=Response)


class NotFinal(Exception):
    """The answer is not known yet. A later `call` with the same key goes on; another key could do the work twice."""

    def __init__(self, key: str, response: Any) -> None:
        super().__init__(f"no final answer under the key {key}")
        self.key, self.response = key, response


@dataclass(frozen=True)
class Pauses:
    """Times are seconds."""

    attempts: int = 8
    """How often the request is sent."""
    base: float = 0.2
    """The longest first pause; each further one may be twice as long, up to `cap`."""
    cap: float = 30.0
    give_up_after: float = 300.0
    """No pause begins that would end later than this after the first sending."""


_OPEN = {"in-progress", "unknown", "retry-later", "unavailable", "handler-late"}


def is_final(response: Response) -> bool:
    """Whether a repeat with the same key would get this answer again."""
    if response.headers.get("Idempotent-Replayed") == "true":
        return True
    word = _problem(response)
    if word in _OPEN:
        return False
    if word in ("failed", "exhausted"):
        return True
    return response.status_code < 500 and response.status_code not in (408, 425, 429)


def _problem(response: Response) -> str | None:
    if not (response.headers.get("Content-Type") or "").startswith("application/problem+json"):
        return None
    try:
        _, found, word = str(response.json().get("type")).rpartition("/problems/idempotency/")
    except (ValueError, AttributeError):
        return None
    return word if found else None


def call(
    send: Callable[[dict[str, str]], R], *, key: str | None = None, store: Callable[[str], object] = lambda key: None,
    errors: tuple[type[Exception], ...] = (Exception,), pauses: Pauses = Pauses(), key_header: str = "Idempotency-Key",
) -> R:  # fmt: skip
    """Sends a request until its answer is final: with one key, after pauses that grow, no shorter than Retry-After.

    `send` gets the key's header field, and makes the same request each time, with a timeout. `store` gets the key
    before the first sending: after a crash the application goes on with the same one, as `key`. `errors` are those
    of `send` that mean that there was no answer.
    """
    key = new_key() if key is None else key
    store(key)
    rest = _pauses(key, pauses)
    while True:
        response, failure = None, None
        try:
            response = send({key_header: quote_key(key)})
            if is_final(response):
                return response
        except errors as error:  # no answer: it may have taken effect
            failure = error
        time.sleep(_next(rest, key, response, failure))


async def acall(
    send: Callable[[dict[str, str]], Awaitable[R]], *, key: str | None = None, store: Callable[[str], Any] = lambda key: None,
    errors: tuple[type[Exception], ...] = (Exception,), pauses: Pauses = Pauses(), key_header: str = "Idempotency-Key",
) -> R:  # fmt: skip
    """The same with an asynchronous `send`; `store` may be asynchronous, too."""
    key = new_key() if key is None else key
    stored = store(key)
    if hasattr(stored, "__await__"):
        await stored
    rest = _pauses(key, pauses)
    while True:
        response, failure = None, None
        try:
            response = await send({key_header: quote_key(key)})
            if is_final(response):
                return response
        except errors as error:
            failure = error
        await asyncio.sleep(_next(rest, key, response, failure))


Rest = Iterator[Callable[[float], float]]


def _pauses(key: str, pauses: Pauses) -> Rest:
    """Each pause as a function of what the answer asks for; negative where it would be too long."""
    end = time.monotonic() + pauses.give_up_after
    for sent in range(pauses.attempts - 1):
        jitter = random.random() * min(pauses.cap, pauses.base * 2**sent)
        yield lambda asked: asked + jitter if time.monotonic() + asked + jitter <= end else -1  # noqa: B023


def _next(rest: Rest, key: str, response: Any, failure: Exception | None) -> float:
    pause = next(rest, None)
    delay = -1.0 if pause is None else pause(_retry_after(response))
    if delay < 0:
        raise NotFinal(key, response) from failure
    return delay


def _retry_after(response: Any) -> float:
    """Seconds or a date, as seconds from now."""
    field = response.headers.get("Retry-After") if response is not None else None
    if not field:
        return 0
    if field.isdecimal():
        return float(field)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(field).timestamp() - time.time())
    except ValueError:
        return 0
