"""The statements of clients/README.md, and no others.

Whatever the driver, every value goes as text, bytes or None, with a cast beside it: no driver has to
guess a type, none encodes JSON once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Union

Value = Union[str, bytes, None]

BEGIN = """
  SELECT outcome, key, token, attempt, status, status_code, headers, body, body_omitted, error, recovery_point,
         state, retry_after
    FROM idem_begin($1::text, request => $2::jsonb,
                    fingerprint => $3::bytea, method => $4::text, path => $5::text, exclude => $6::text[],
                    scope => $7::text, principal => $8::text,
                    ttl => $9::bigint * interval '1 ms', lease => $10::bigint * interval '1 ms',
                    wait => $11::bigint * interval '1 ms', holder => $12::text, transactional => $13::boolean,
                    derive => $14::bigint * interval '1 ms')"""

COMPLETE = """
  SELECT idem_complete($1::text, $2::integer, $3::bytea, $4::jsonb, scope => $5::text,
                       principal => $6::text, token => $7::bigint)"""

FAIL = """
  SELECT idem_fail($1::text, $2::text, retryable => true, scope => $3::text, principal => $4::text,
                   token => $5::bigint, uncertain => $6::boolean)"""

UNKNOWN = """
  SELECT idem_unknown($1::text, $2::text, $3::text, scope => $4::text, principal => $5::text, token => $6::bigint)"""

EXTEND = "SELECT idem_extend($1::text, $2::bigint, scope => $3::text, principal => $4::text)"

CHECKPOINT = """
  SELECT idem_checkpoint($1::text, $2::text, $3::jsonb, scope => $4::text, principal => $5::text,
                         token => $6::bigint)"""

ONCE = "SELECT idem_once($1::text, scope => $2::text, principal => $3::text) AS first"

# For a COMMIT that follows the handler's statements: if one of them has failed, PostgreSQL turns the COMMIT
# into a ROLLBACK, and drivers do not report that.
CHECK = "SELECT 1"

PROBLEM = "SELECT idem_problem($1::text) AS problem"

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
