"""Flask: a decorator below the route's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flask import Response, current_app, make_response, request
from werkzeug.exceptions import HTTPException

from .claim import Answer
from .database import Tx, drive
from .errors import AnswerTooLarge, NothingHappened, Rejection, is_transient
from .route import Route, claim
from .wsgi import Blocking, F, bearer, headers_of, read_limited, set_body, target_of, wsgi_headers

__all__ = ["Idempotency", "bearer", "claim"]
_CACHES = ("stream", "data", "form", "files", "values", "json", "_cached_data", "content_length", "_parsed_content_type")


class Idempotency(Blocking[Tx]):
    """For the views of an application."""

    def _wrapper(self, route: Route[Any, Tx]) -> Callable[[F], F]:
        def decorator(view: F) -> F:
            @functools.wraps(view)
            def protected(**arguments: Any) -> Response:
                return _handle(route, functools.partial(current_app.ensure_sync(view), **arguments))

            return protected  # type: ignore[return-value]

        return decorator


def _handle(route: Route[Any, Any], view: Callable[[], Any]) -> Response:
    reply = drive(route.handle(_FlaskExchange(view)))
    body = reply.answer.body or b""
    response = current_app.response_class(body, reply.answer.status)
    response.headers.clear()
    response.headers.extend(wsgi_headers(reply, body))
    return response


class _FlaskExchange:
    def __init__(self, view: Callable[[], Any]) -> None:
        self.request = request._get_current_object()  # type: ignore[attr-defined]
        self.view = view
        self.headers = headers_of(self.request.environ)
        self.method: str = self.request.method
        self.target = target_of(self.request.environ)

    def default_scope(self) -> str:
        rule = self.request.url_rule
        return f"{self.method} {rule.rule if rule is not None else self.request.path}"

    async def read_body(self, limit: int) -> bytes:
        known = vars(self.request)
        if "_cached_data" in known:
            return bytes(known["_cached_data"])
        if "form" in known:
            raise RuntimeError("idempotency: the body was parsed before the route")
        return read_limited(self.request.environ, limit)

    async def run(self, body: bytes, limit: int | None) -> Answer:
        set_body(self.request.environ, body)
        for name in _CACHES:
            vars(self.request).pop(name, None)
        if "_cached_json" in vars(self.request):
            del self.request._cached_json
        raised = False
        try:
            response = make_response(self.view())
        except Exception as error:
            # An exception that the application answers is an answer. The route must see some errors first.
            if isinstance(error, (NothingHappened, Rejection)) or is_transient(error, from_handler=True):
                raise
            if not isinstance(error, HTTPException) and current_app._find_error_handler(error, request.blueprints) is None:
                raise
            response, raised = make_response(current_app.handle_user_exception(error)), True  # type: ignore[arg-type]
        pieces, size = [], 0
        for piece in response.iter_encoded():
            pieces.append(piece)
            size += len(piece)
            if limit is not None and size > limit:
                raise AnswerTooLarge(f"the answer has more than {limit} bytes")
        response.close()
        return Answer(response.status_code, list(response.headers.items()), b"".join(pieces), raised)
