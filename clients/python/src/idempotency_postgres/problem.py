"""Problem documents (RFC 9457): the server's, by the word of an outcome, and those of HTTP itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .claim import Answer

if TYPE_CHECKING:
    from .database import Io

# For when the server does not answer.
_WITHOUT_SERVER: dict[str, tuple[str, int]] = {
    "in_progress": ("A request is outstanding for this Idempotency-Key", 409),
    "mismatch": ("Idempotency-Key is already used", 422),
    "expired": ("Idempotency-Key has expired", 412),
    "retry_later": ("The request failed and may be retried later", 503),
    "exhausted": ("All attempts of the request have failed", 500),
    "unknown": ("The result of the request is not known", 409),
    "missing_key": ("Idempotency-Key is missing", 400),
    "bad_key": ("Idempotency-Key is malformed", 400),
    "failed": ("The request has failed", 500),
    "unavailable": ("The service is not available", 503),
}


class HttpProblem(Exception):
    """A refusal that does not concern keys."""

    def __init__(self, status: int, title: str) -> None:
        super().__init__(title)
        self.status, self.title = status, title

    @property
    def answer(self) -> Answer:
        return document_answer({"type": "about:blank", "title": self.title, "status": self.status})


class Problems:
    """The documents of one database, each requested once."""

    def __init__(self, io: Io[Any], statuses: Mapping[str, int], limit: float) -> None:
        self._io, self._statuses, self._limit = io, statuses, limit
        self._known: dict[str, dict[str, Any]] = {}

    async def answer(self, word: str, retry_after: float | None = None) -> Answer:
        document = dict(await self._document(word))
        document["status"] = self._statuses.get(word, document["status"])
        if retry_after is None and word == "in_progress":
            retry_after = 1
        if retry_after is not None:
            document["retry_after"] = max(1, math.ceil(retry_after))
        return document_answer(document)

    async def _document(self, word: str) -> dict[str, Any]:
        if word not in self._known:
            title, status = _WITHOUT_SERVER[word]
            own = {"type": "/problems/idempotency/" + word.replace("_", "-"), "title": title, "status": status}
            if word == "unavailable":
                return own
            try:
                self._known[word] = await self._io.problem(word, self._limit)
            except Exception:
                return own
        return self._known[word]


def document_answer(document: Mapping[str, Any]) -> Answer:
    headers = [("Content-Type", "application/problem+json")]
    if "retry_after" in document:
        headers.append(("Retry-After", str(document["retry_after"])))
    return Answer(document["status"], headers, json.dumps(document).encode())
