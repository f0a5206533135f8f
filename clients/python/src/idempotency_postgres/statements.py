"""The statements, as drivers want them.

Whatever the driver, every value goes as text, bytes or None, with a cast beside it: no driver has to
guess a type, none encodes JSON once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Union

from .contract import BEGIN, CHECKPOINT, COMPLETE, EXTEND, FAIL, ONCE, PROBLEM, UNKNOWN  # noqa: F401

Value = Union[str, bytes, None]

# For a COMMIT that follows the handler's statements: if one of them has failed, PostgreSQL turns the COMMIT
# into a ROLLBACK, and drivers do not report that.
CHECK = "SELECT 1"

_PLACE = re.compile(r"\$(\d+)(::\w+(?:\[\])?)")


def pyformat(text: str) -> str:
    """For drivers that use `%(p1)s`; the statements contain no other percent sign."""
    return _PLACE.sub(r"%(p\1)s\2", text)


def named(text: str) -> str:
    """For SQLAlchemy's text(), where a colon after a placeholder is a syntax error; its driver may be asyncpg."""
    return _PLACE.sub(lambda m: _cast(f":p{m[1]}", m[2][2:]), text)


def _cast(place: str, kind: str) -> str:
    own = f"CAST({place} AS {'bytea' if kind == 'bytea' else 'text'})"
    return own if kind in ("bytea", "text") else f"CAST({own} AS {kind})"


def untyped(text: str) -> str:
    """For asyncpg, which expects an int for a bigint, and has codecs for jsonb: all but bytes go as text."""
    return _PLACE.sub(lambda m: m[0] if m[2] == "::bytea" else f"${m[1]}::text{m[2]}", text)


def by_name(values: Sequence[Value]) -> dict[str, Value]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}


def milliseconds(seconds: float | None) -> Value:
    return None if seconds is None else str(round(seconds * 1000))


def text_array(items: Iterable[str]) -> Value:
    return "{%s}" % ",".join('"%s"' % re.sub(r'([\\"])', r"\\\1", item) for item in items)
