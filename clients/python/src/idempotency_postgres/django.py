"""Django 5: a decorator for views; the claim is in the transaction that the view's models use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.exceptions import BadRequest, PermissionDenied
from django.core.handlers.exception import response_for_exception
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from .claim import Answer
from .database import Open, Rows, Statement, drive
from .deadline import Deadline, breaking, is_gone
from .errors import AnswerTooLarge, is_connection_lost
from .route import Route, RouteOptions, claim
from .statements import Value, by_name, pyformat
from .wsgi import Blocking, F, bearer, headers_of, read_limited, set_body, target_of, wsgi_headers

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Idempotency", "bearer", "claim", "database"]


class database:
    """A database of the settings. Handlers get its connection; models use the same."""

    def __init__(self, using: str = "default") -> None:
        self.using = using

    @contextmanager
    def _connection(self, deadline: Deadline) -> Iterator[Any]:
        connection = connections[self.using]
        try:
            if not connection.in_atomic_block:  # that of a test, for example
                connection.close_if_unusable_or_obsolete()
            connection.ensure_connection()
            while is_gone(connection.connection) and not connection.in_atomic_block:
                connection.connection.close()  # or Django's pool hands it out again
                connection.close()
                deadline.check()
                connection.ensure_connection()
            deadline.check()
            with breaking(connection.connection, deadline):
                yield connection
        except Exception as error:
            if deadline.expired or is_connection_lost(error):
                connection.close()  # the next attempt gets another
            raise

    @contextmanager
    def transaction(self, deadline: Deadline, first: Statement | None) -> Iterator[Open[Any]]:
        # Within another transaction, only its owner would know when the claim commits.
        with self._connection(deadline) as connection, transaction.atomic(self.using, durable=True):
            own = Open(connection, self.query(connection, *first) if first else (), lambda: is_gone(connection.connection))
            yield own
            if own.last is not None:
                self.query(connection, *own.last)

    def query(self, tx: Any, text: str, values: Sequence[Value]) -> Rows:
        with tx.cursor() as cursor:
            cursor.execute(pyformat(text), by_name(values))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def statement(self, text: str, values: Sequence[Value], deadline: Deadline) -> Rows:
        with self._connection(deadline) as connection:
            if connection.in_atomic_block:
                raise RuntimeError("idempotency: a leased claim within a transaction would not be committed")
            return self.query(connection, text, values)

    @contextmanager
    def listening(self, within: float) -> Iterator[Any]:
        """A driver's connection for LISTEN alone."""
        own = connections[self.using].copy()
        own.connect()
        try:
            yield own.connection
        finally:
            own.connection.close()
            own.close()

    def close_thread(self) -> None:
        connections[self.using].close()


class Idempotency(Blocking[Any]):
    """The decorator of views."""

    def __init__(self, database: Any = database(), **common: Unpack[RouteOptions]) -> None:
        super().__init__(database, **common)

    def _wrapper(self, route: Route[Any, Any]) -> Callable[[F], F]:
        def decorator(view: F) -> F:
            # Django looks for a form's token, and reads the body for it; clients that send keys have no form.
            @csrf_exempt
            @transaction.non_atomic_requests
            @functools.wraps(view)
            def protected(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                return _handle(route, request, functools.partial(view, request, *args, **kwargs))

            return protected  # type: ignore[return-value]

        return decorator


def _handle(route: Route[Any, Any], request: HttpRequest, view: Callable[[], Any]) -> HttpResponseBase:
    reply = drive(route.handle(_DjangoExchange(request, view)))
    body = reply.answer.body or b""
    response = _Response(body, reply.answer.status, wsgi_headers(reply, body))
    return response


class _Response(HttpResponse):
    """Django keeps one field of each name."""

    def __init__(self, body: bytes, status: int, fields: Sequence[tuple[str, str]]) -> None:
        super().__init__(body, status=status)
        del self.headers["Content-Type"]
        self._fields = list(fields)
        for name, value in self._fields:
            self.headers[name] = value

    def items(self) -> Any:
        """The fields as sent: ours, and those that middlewares have added or changed since."""
        ours: dict[str, list[str]] = {}
        for name, value in self._fields:
            ours.setdefault(name.lower(), []).append(value)
        for name, value in self.headers.items():
            values = ours.get(name.lower(), [])
            for one in values if values and values[-1] == value else [value]:
                yield name, one


class _DjangoExchange:
    def __init__(self, request: HttpRequest, view: Callable[[], Any]) -> None:
        self.request, self.view = request, view
        self.headers = headers_of(request.META)
        self.method = request.method or ""
        self.target = target_of(request.META)

    def default_scope(self) -> str:
        match = self.request.resolver_match
        return f"{self.method} /{match.route.lstrip('/')}" if match is not None else f"{self.method} {self.request.path}"

    async def read_body(self, limit: int) -> bytes:
        if hasattr(self.request, "_body"):
            return bytes(self.request.body)
        if self.request._read_started:  # type: ignore[attr-defined]
            raise RuntimeError("idempotency: the body was read before the view")
        meta = self.request.META
        # Django's own stream is empty where there is no Content-Length; ASGI's is a file.
        if meta.get("CONTENT_LENGTH") or "wsgi.input" not in meta:
            meta = {**meta, "wsgi.input": self.request, "wsgi.input_terminated": True}
        return read_limited(meta, limit)

    async def run(self, body: bytes, limit: int | None) -> Answer:
        request: Any = self.request
        set_body(request.META, body)
        request._body, request._read_started = body, False
        for name in ("_post", "_files", "_post_parse_error"):
            vars(request).pop(name, None)
        raised = False
        try:
            response = self.view()
        except (Http404, PermissionDenied, BadRequest) as error:
            response, raised = response_for_exception(self.request, error), True
        if hasattr(response, "render") and not response.is_rendered:
            response.render()
        pieces, size = [], 0
        for piece in response:
            pieces.append(piece)
            size += len(piece)
            if limit is not None and size > limit:
                raise AnswerTooLarge(f"the answer has more than {limit} bytes")
        cookies = [("Set-Cookie", morsel.OutputString()) for morsel in response.cookies.values()]
        return Answer(response.status_code, [*response.items(), *cookies], b"".join(pieces), raised)
