"""Answers of idem_begin as Python values, and answers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .contract import NOT_STORED

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP. Several fields of one name are several pairs."""

    status: int = 200
    headers: Fields = ()
    body: bytes | None = None
    raised: bool = False
    """It is the answer to an exception, so the work is rolled back."""


@dataclass(frozen=True)
class Request:
    """The request of a claim. Times are seconds."""

    key: str | None
    """None: the server derives the key, see `derive`."""
    scope: str
    principal: str
    json: str | None = None
    """The request's JSON, as it was sent."""
    fingerprint: bytes | None = None
    """The digest of a body that is not JSON."""
    method: str | None = None
    target: str | None = None
    exclude: Sequence[str] = ()
    ttl: float | None = None
    wait: float | None = None
    holder: str | None = None
    """The name of this worker, shown to operators."""
    derive: float | None = None
    """The server derives a key from the request, and forgets it after this time."""


@dataclass(frozen=True)
class Record:
    """A row of idem_begin."""

    outcome: str
    key: str
    token: int | None = None
    attempt: int | None = None
    status: str | None = None
    status_code: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    body_omitted: bool = False
    error: str | None = None
    recovery_point: str | None = None
    state: Any = None
    retry_after: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Record:
        values = dict(row)
        values["headers"] = _json(values["headers"]) or {}
        values["state"] = _json(values["state"])
        for name, convert in (("token", int), ("attempt", int), ("status_code", int), ("retry_after", float), ("body", bytes)):
            if values[name] is not None:
                values[name] = convert(values[name])  # psycopg2 has memoryviews
        values["body_omitted"] = values["body_omitted"] is True
        return cls(**values)

    def replay(self) -> Answer | None:
        """The stored answer; none where a record failed without one."""
        if self.status_code is None and self.status != "completed":
            return None
        fields = [
            (name, one)
            for name, value in self.headers.items()
            for one in (value if isinstance(value, list) else [value])
        ]
        if self.body_omitted:
            fields.append(("Idempotent-Body", "omitted"))
        return Answer(200 if self.status_code is None else self.status_code, fields, self.body)


def _json(value: Any) -> Any:
    """asyncpg leaves JSON as text, unless it has a codec."""
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def stored_headers(fields: Iterable[tuple[str, str]], drop: Iterable[str] = ()) -> str:
    """In the form of idem_complete: one member for each name; several values become an array."""
    left = {name.lower() for name in drop}
    members: dict[str, tuple[str, list[str]]] = {}
    for name, value in fields:
        lower = name.lower()
        if lower not in NOT_STORED and lower not in left:
            members.setdefault(lower, (name, []))[1].append(value)
    return json.dumps({name: values if len(values) > 1 else values[0] for name, values in members.values()})
