"""Problem documents (RFC 9457): the server's, by the word of an outcome, and those of HTTP itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .claim import Answer
from .contract import PROBLEMS

if TYPE_CHECKING:
    from .database import Io


class HttpProblem(Exception):
    """A refusal that does not concern keys."""

    def __init__(self, word: str, detail: str = "") -> None:
        super().__init__(detail or PROBLEMS[word][1])
        self.word, self.detail, self.status = word, detail, PROBLEMS[word][0]

    @property
    def answer(self) -> Answer:
        return document_answer({**local(self.word), **({"detail": self.detail} if self.detail else {})})


def local(word: str) -> dict[str, Any]:
    """The document without the server's help."""
    status, title, _ = PROBLEMS[word]
    return {"type": "/problems/idempotency/" + word.replace("_", "-"), "title": title, "status": status}


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
            if PROBLEMS[word][2]:
                return local(word)
            try:
                self._known[word] = await self._io.problem(word, self._limit)
            except Exception:
                return local(word)
        return self._known[word]


def document_answer(document: Mapping[str, Any]) -> Answer:
    headers = [("Content-Type", "application/problem+json")]
    if "retry_after" in document:
        headers.append(("Retry-After", str(document["retry_after"])))
    return Answer(document["status"], headers, json.dumps(document).encode())
