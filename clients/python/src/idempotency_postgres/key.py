"""Reads a key as idem_parse_key does.

A String of RFC 9651, whose parameters are checked and ignored, or a bare value. The field is read raw: escapes
and lists are not decoded.
"""

from __future__ import annotations

import os
import re
import time
import uuid

_BARE_ITEM = "|".join(
    (
        r'"(?:[ !#-\[\]-~]|\\["\\])*"',  # String
        r":[A-Za-z0-9+/]*=*:",  # Byte Sequence
        r"\?[01]",  # Boolean
        r"@-?[0-9]{1,15}(?![0-9.])",  # Date
        r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"',  # Display String
        r"-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])",  # Decimal
        r"-?[0-9]{1,15}(?![0-9.])",  # Integer
        r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*",  # Token
    )
)
_PARAMETER = re.compile(rf"; *[a-z*][a-z0-9_\-.*]*(?:=(?:{_BARE_ITEM}))?")
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")


def parse_key(field: str) -> str | None:
    """The key in a field's value; None if it has none."""
    value = field.strip(" \t")
    quoted = _STRING.match(value)
    if quoted and _are_parameters(value, quoted.end()):
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif _BARE.fullmatch(value):
        key = value
    else:
        return None
    return key if len(key) <= 255 and key.strip(" ") else None


def _are_parameters(value: str, at: int) -> bool:
    while at < len(value):
        parameter = _PARAMETER.match(value, at)
        if parameter is None:
            return False
        at = parameter.end()
    return True


def quote_key(key: str) -> str:
    """As a String of RFC 9651. Keys of ours and those that parse_key has read are ASCII."""
    return '"%s"' % re.sub(r'([\\"])', r"\\\1", key)


def new_key(now: float | None = None) -> str:
    """A UUID of version 7: keys of one moment lie together in an index."""
    milliseconds = int((time.time() if now is None else now) * 1000)
    value = int.from_bytes(milliseconds.to_bytes(6, "big") + os.urandom(10), "big")
    value = value & ~(0xF000 << 64) | 0x7000 << 64
    return str(uuid.UUID(int=value & ~(0xC000 << 48) | 0x8000 << 48))
