"""Starlette: `Route("/payments", pay, methods=["POST"], middleware=[keys.transactional()])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware
from starlette.requests import Request

from . import asgi
from .asgi import bearer
from .database import Tx
from .route import RouteOptions, claim

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Idempotency", "bearer", "claim"]


class Idempotency(asgi.Idempotency[Tx]):
    """The options that all routes of a service share, and two ways to make a route."""

    def transactional(self, **options: Unpack[RouteOptions]) -> Middleware:  # type: ignore[override]
        return self._middleware(super().transactional(**options))

    def leased(self, **options: Unpack[RouteOptions]) -> Middleware:  # type: ignore[override]
        return self._middleware(super().leased(**options))

    @staticmethod
    def _middleware(wrap: Any) -> Middleware:
        return Middleware(wrap)

    @staticmethod
    def request(scope: Any) -> Request:
        return Request(scope)
