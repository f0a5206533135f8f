"""FastAPI: a decorator below the path operation's, and `app.router.route_class = keys.route_class`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from . import asgi, route
from .asgi import bearer, protect
from .database import Tx
from .route import Kind, RouteOptions, current

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Idempotency", "IdempotentRoute", "bearer", "claim"]
F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__idempotency__"


async def claim() -> Any:
    """A dependency: `own: Annotated[Transactional, Depends(claim)]`."""
    return route.claim()


class _Unrouted:
    """In the place of a signature: another route class raises a TypeError when it looks at that, with this text."""

    def __repr__(self) -> str:
        return "<idempotency: before the path operation, set route_class=keys.route_class on its router>"


class IdempotentRoute(APIRoute):
    """FastAPI reads and parses a body before it calls a path operation; the claim must come before that."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        inner: Any = endpoint
        while inner is not None:  # below other decorators
            if isinstance(getattr(inner, "__signature__", None), _Unrouted):
                del inner.__signature__
            inner = getattr(inner, "__wrapped__", None)
        super().__init__(path, endpoint, **options)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        protection = getattr(self.endpoint, _MARK, None)
        if protection is None or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
        else:
            await protect(protection, super().handle, Request, scope, receive, send)


class Idempotency(asgi.Idempotency[Tx]):
    """The options that all routes of a service share, and two ways to make a route."""

    route_class = IdempotentRoute

    def transactional(self, **options: Unpack[RouteOptions]) -> Callable[[F], F]:  # type: ignore[override]
        return self._mark("transactional", options)

    def leased(self, **options: Unpack[RouteOptions]) -> Callable[[F], F]:  # type: ignore[override]
        return self._mark("leased", options)

    def _mark(self, kind: Kind, options: RouteOptions) -> Callable[[F], F]:
        protection = self.route(kind, options)

        def decorator(function: F) -> F:
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def checked(*args: Any, **kwargs: Any) -> Any:
                    _check()
                    return await function(*args, **kwargs)
            else:

                @functools.wraps(function)
                def checked(*args: Any, **kwargs: Any) -> Any:
                    _check()
                    return function(*args, **kwargs)

            setattr(checked, _MARK, protection)
            checked.__signature__ = _Unrouted()  # type: ignore[attr-defined]
            return checked  # type: ignore[return-value]

        return decorator


def _check() -> None:
    """A call from elsewhere raises: it would have no protection."""
    if current.get() is None:
        raise RuntimeError("idempotency: no claim here. Does the router of this path operation have route_class=keys.route_class?")
