"""Any WSGI application, or a part of one: `keys.transactional()(app)`; and what Flask and Django share with it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from .claim import Answer
from .database import AnyDatabase, Tx, drive, is_async
from .errors import AnswerTooLarge
from .identity import BodyReader
from .problem import HttpProblem
from .route import Kind, Reply, Route, RouteOptions, bearer_token, claim, options_of, values_of, with_length

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Idempotency", "bearer", "claim"]

Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
F = TypeVar("F", bound=Callable[..., Any])


def headers_of(environ: Any) -> list[tuple[str, str]]:
    """WSGI joins several fields of one name into one, with commas."""
    headers = [(name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")]
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers.append((name.replace("_", "-"), environ[name]))
    return headers


def target_of(environ: Environ) -> str:
    """The target as sent, if the server has it (gunicorn, uWSGI, werkzeug); else put together again."""
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw:
        split = urlsplit(raw)
        return split.path + ("?" + split.query if split.query else "")
    path = quote((environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1"))
    query = environ.get("QUERY_STRING", "")
    return path + ("?" + query if query else "")


def bearer(request: Any) -> str | None:
    """The token of `Authorization: Bearer TOKEN`: for services whose tokens are checked before."""
    environ = request if isinstance(request, dict) else getattr(request, "environ", None) or request.META
    return bearer_token(headers_of(environ))


def read_limited(environ: Environ, limit: int) -> bytes:
    headers = headers_of(environ)
    length = environ.get("CONTENT_LENGTH") or None
    if length is not None and not (length.isascii() and length.isdecimal()):
        raise HttpProblem("bad_body", "Content-Length is not a number.")
    reader = BodyReader(", ".join(values_of(headers, "Content-Encoding")) or None, length, limit)
    stream = environ["wsgi.input"]
    # Without a length the server must tell that the stream ends with the body.
    terminated = bool(environ.get("wsgi.input_terminated"))
    if "HTTP_TRANSFER_ENCODING" in environ and not terminated:
        raise HttpProblem("bad_body", "The server does not say where the body ends.")
    left = 1 << 62 if terminated and not length else int(length or 0)
    taken = 0
    while left > 0:
        # Reads no more than the limit needs: a stream may wait until it has as much as was requested.
        data = stream.read(min(left, 65536, limit + 1 - taken if taken <= limit else 65536))
        if not data:
            if length:
                raise HttpProblem("bad_body", "The body ended too early.")
            break
        left -= len(data)
        taken += len(data)
        reader.feed(data)
    return reader.body()


def set_body(environ: Environ, body: bytes) -> None:
    """The body, decoded and whole."""
    environ["wsgi.input"] = io.BytesIO(body)
    environ["wsgi.input_terminated"] = True
    environ["CONTENT_LENGTH"] = str(len(body))
    for name in ("HTTP_CONTENT_ENCODING", "HTTP_TRANSFER_ENCODING"):
        environ.pop(name, None)


class Blocking(Generic[Tx]):
    """The options that all routes of a service share, and two ways to make a route."""

    def __init__(self, database: AnyDatabase[Tx], **common: Unpack[RouteOptions]) -> None:
        if is_async(database):
            raise TypeError("idempotency: a blocking framework needs a blocking database")
        self._db, self._common = database, common
        options_of({"principal": id}, common)  # raises where one is wrong

    def route(self, kind: Kind, options: RouteOptions) -> Route[Any, Tx]:
        return Route(self._db, kind, options_of(self._common, options))

    def transactional(self, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        return self._wrapper(self.route("transactional", options))

    def leased(self, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        return self._wrapper(self.route("leased", options))

    def _wrapper(self, route: Route[Any, Tx]) -> Callable[[F], F]:
        """Puts the route around the framework's call."""
        raise NotImplementedError


class Idempotency(Blocking[Tx]):
    """For any WSGI application."""

    def _wrapper(self, route: Route[Any, Tx]) -> Callable[[F], F]:
        def wrap(app: F) -> F:
            def protected(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
                reply = drive(route.handle(WsgiExchange(environ, app)))
                body = reply.answer.body or b""
                start_response(status_line(reply), wsgi_headers(reply, body))
                return [body]

            return protected  # type: ignore[return-value]

        return wrap


def wsgi_headers(reply: Reply, body: bytes) -> list[tuple[str, str]]:
    """The server sets Connection."""
    return [pair for pair in with_length(reply, body) if pair[0].lower() != "connection"]


def status_line(reply: Reply) -> str:
    try:
        return f"{reply.answer.status} {HTTPStatus(reply.answer.status).phrase}"
    except ValueError:
        return f"{reply.answer.status} -"


class WsgiExchange:
    def __init__(self, environ: Environ, app: Wsgi) -> None:
        self.environ, self.app, self.request = environ, app, environ
        self.headers = headers_of(environ)
        self.method: str = environ["REQUEST_METHOD"]
        self.target = target_of(environ)

    def default_scope(self) -> str:
        return f"{self.method} {self.environ.get('SCRIPT_NAME', '')}{self.environ.get('PATH_INFO', '')}"

    async def read_body(self, limit: int) -> bytes:
        return read_limited(self.environ, limit)

    async def run(self, body: bytes, limit: int | None) -> Answer:
        environ = dict(self.environ)
        set_body(environ, body)
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], Any]:
            started[:] = [int(status.split(" ", 1)[0]), list(headers)]
            return pieces.append

        pieces: list[bytes] = []
        result = self.app(environ, start_response)
        try:
            size = 0
            for piece in result:
                pieces.append(piece)
                size += len(piece)
                if limit is not None and size > limit:
                    raise AnswerTooLarge(f"the answer has more than {limit} bytes")
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()
        return Answer(started[0], started[1], b"".join(pieces))
