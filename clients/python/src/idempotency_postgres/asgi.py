"""Any ASGI application, or a part of one: `keys.transactional()(app)`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from .claim import Answer
from .database import AnyDatabase, InThreads, Tx, is_async
from .errors import AnswerTooLarge, NothingHappened, Rejection, is_transient
from .identity import BodyReader
from .route import Kind, Reply, Route, RouteOptions, bearer_token, claim, options_of, values_of, with_length

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Asgi", "Idempotency", "bearer", "claim"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Req = TypeVar("Req")


def headers_of(scope: Any) -> list[tuple[str, str]]:
    """The header fields of an ASGI scope, or of a request that has one."""
    scope = getattr(scope, "scope", scope)
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]


def bearer(request: Any) -> str | None:
    """The token of `Authorization: Bearer TOKEN`: for services whose tokens are checked before."""
    return bearer_token(headers_of(request))


class Idempotency(Generic[Tx]):
    """The options that all routes of a service share, and two ways to make a route."""

    def __init__(self, database: AnyDatabase[Tx], **common: Unpack[RouteOptions]) -> None:
        self._db: Any = database if is_async(database) else InThreads(database)  # type: ignore[arg-type]
        self._common = common
        options_of({"principal": id}, common)  # raises where one is wrong

    def route(self, kind: Kind, options: RouteOptions) -> Route[Any, Tx]:
        return Route(self._db, kind, options_of(self._common, options))

    def transactional(self, **options: Unpack[RouteOptions]) -> Callable[[Asgi], Asgi]:
        return self._wrapper(self.route("transactional", options))

    def leased(self, **options: Unpack[RouteOptions]) -> Callable[[Asgi], Asgi]:
        return self._wrapper(self.route("leased", options))

    def _wrapper(self, route: Route[Any, Tx]) -> Callable[[Asgi], Asgi]:
        return lambda app: functools.partial(protect, route, app, self.request)

    @staticmethod
    def request(scope: Scope) -> Any:
        """The argument of `principal` and `fingerprint`."""
        return scope


async def protect(
    route: Route[Any, Any], app: Asgi, request: Callable[[Scope], Any], scope: Scope, receive: Receive, send: Send
) -> None:
    if scope["type"] != "http":
        await app(scope, receive, send)
        return
    exchange = AsgiExchange(scope, receive, app, request(scope))
    try:
        reply = await route.handle(exchange)
    except Disconnected:
        return
    await send_reply(reply, send)


class Disconnected(Exception):
    """The client has disconnected and cannot send the rest of the body."""


class AsgiExchange:
    def __init__(self, scope: Scope, receive: Receive, app: Asgi, request: Any) -> None:
        self.scope, self.receive, self.app, self.request = scope, receive, app, request
        self.headers = headers_of(scope)
        self.method: str = scope["method"]
        path = scope.get("raw_path") or quote(scope.get("root_path", "") + scope["path"]).encode()
        query = scope.get("query_string", b"")
        self.target = (path.split(b"?", 1)[0] + (b"?" + query if query else b"")).decode("latin-1")

    def default_scope(self) -> str:
        route = self.scope.get("route")
        leaf = getattr(route, "path_format", "")
        return f"{self.method} {template(self.scope['path'], leaf, self.scope.get('path_params') or {})}"

    def field(self, name: str) -> str | None:
        return ", ".join(values_of(self.headers, name)) or None

    async def read_body(self, limit: int) -> bytes:
        reader = BodyReader(self.field("Content-Encoding"), self.field("Content-Length"), limit)
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            reader.feed(message.get("body", b""))
            more = message.get("more_body", False)
        return reader.body()

    async def run(self, body: bytes, limit: int | None) -> Answer:
        catch = _Catch(limit)
        # The body is decoded, and whole. The server's other ways to send an answer would bypass us.
        left = {b"content-encoding", b"transfer-encoding", b"content-length"}
        headers = [pair for pair in self.scope["headers"] if pair[0].lower() not in left]
        headers.append((b"content-length", str(len(body)).encode()))
        scope = {**self.scope, "headers": headers, "extensions": {}, "state": dict(self.scope.get("state") or {})}
        if "starlette.exception_handlers" in scope:
            # Starlette answers exceptions within the route.
            by_kind, by_status, *others = scope["starlette.exception_handlers"]
            scope["starlette.exception_handlers"] = (_Noting(by_kind, catch), _Noting(by_status, catch), *others)
        await self.app(scope, _receive_once(body), catch.send)
        return catch.answer()


def _receive_once(body: bytes) -> Receive:
    """After the body nothing comes: a client's disconnect must not cut an answer that is to be kept."""
    given = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def template(path: str, leaf: str, parameters: Mapping[str, Any]) -> str:
    """The route with the names of its parameters; `leaf` knows neither mounts nor the prefixes of routers."""
    try:
        tail = leaf.format(**parameters)
    except (LookupError, ValueError):
        return path
    if not path.endswith(tail):
        return path
    names = {str(value): f"{{{name}}}" for name, value in parameters.items() if f"{{{name}}}" not in leaf}
    return "/".join(names.get(part, part) for part in path[: len(path) - len(tail)].split("/")) + leaf


class _Noting(Mapping[Any, Callable[..., Any]]):
    """Handlers that note their exceptions."""

    def __init__(self, handlers: Mapping[Any, Callable[..., Any]], catch: _Catch) -> None:
        self._handlers, self._catch = handlers, catch

    def __getitem__(self, what: Any) -> Callable[..., Any]:
        return self._catch.noting(self._handlers[what])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


class _Catch:
    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._start: MutableMapping[str, Any] | None = None
        self._body = bytearray()
        self._done = False
        self._raised = False

    def noting(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """An exception is answered, and noted. Some must reach the claim as they are."""

        def note(error: Exception) -> None:
            if isinstance(error, (NothingHappened, Rejection)) or is_transient(error, from_handler=True):
                raise error
            self._raised = True

        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):

            async def noted(request: Any, error: Exception) -> Any:
                note(error)
                return await handler(request, error)

            return noted

        def noted_blocking(request: Any, error: Exception) -> Any:
            note(error)
            return handler(request, error)

        return noted_blocking

    def _check(self) -> None:
        if self._limit is not None and len(self._body) > self._limit:
            raise AnswerTooLarge(f"the answer has more than {self._limit} bytes")

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            self._done = not message.get("more_body", False)
            self._check()

    def answer(self) -> Answer:
        self._check()  # the application may have replaced the exception of `send`
        if self._start is None or not self._done:
            raise RuntimeError("idempotency: the application has not answered")
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._start.get("headers", ())]
        return Answer(self._start["status"], fields, bytes(self._body), self._raised)


async def send_reply(reply: Reply, send: Send) -> None:
    body = reply.answer.body or b""
    headers = with_length(reply, body)
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": reply.answer.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
