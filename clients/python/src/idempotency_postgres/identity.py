"""The parts of a body that identify the request, and the decoding of a body. No I/O."""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import Union

from .problem import HttpProblem


def media_type(content_type: str | None) -> str | None:
    """Type and subtype, in lower case; None if there is none."""
    return (content_type or "").split(";", 1)[0].strip().lower() or None


def is_json(media: str | None) -> bool:
    return media is not None and (media == "application/json" or re.fullmatch(r"[^/]+/[^/]+\+json", media) is not None)


def not_json() -> HttpProblem:
    return HttpProblem("bad_json")


def too_large() -> HttpProblem:
    return HttpProblem("body_too_large")


def text_of(body: bytes) -> str:
    """The text of a JSON body, exactly. A text that is not UTF-8 is not JSON, and no driver would send a NUL."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise not_json() from None
    if "\0" in text:
        raise not_json()
    return text


def digest(method: str, target: str, content_type: str | None, body: bytes) -> bytes:
    """The fingerprint of a body that is not JSON: docs/fingerprint.md, with the media type as an extra part."""
    media = media_type(content_type)
    parts = parts_of(content_type or "", body) if media == "multipart/form-data" else None
    hashed = hashlib.sha256(b"idempotency fingerprint 1\n")
    for part in (method, target, media, *(one for each in parts for one in each)) if parts else (method, target, media, body):
        data = part.encode() if isinstance(part, str) else part
        hashed.update(b"-\n" if data is None else b"%d:%b\n" % (len(data), data))
    return hashed.digest()


# ---- forms ----

Part = tuple[Union[bytes, None], Union[bytes, None], Union[str, None], bytes]
"""Name, file name, media type and content. Each sending has another boundary, so the parts identify a form."""


def _parameter(value: bytes, name: bytes) -> bytes | None:
    """The parameter of a field's value, without its quotes."""
    found = re.search(rb';[ \t]*' + name + rb'[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;" \t]*))', value, re.I | re.S)
    if found is None:
        return None
    return found[2] if found[1] is None else re.sub(rb'\\(["\\])', rb"\1", found[1])


def parts_of(content_type: str, body: bytes) -> list[Part] | None:
    """None if the body is not what its type says."""
    boundary = _parameter(content_type.encode("latin-1", "replace"), b"boundary")
    mark = b"\r\n--" + (boundary or b"")
    whole = b"\r\n" + body  # the first mark may begin the body
    if not boundary or not whole.startswith(mark):
        return None
    parts: list[Part] = []
    at = 0
    while True:
        at += len(mark)
        if whole.startswith(b"--", at):
            return parts if parts and len(whole) <= at + 4 else None
        end = whole.find(mark, at)
        part = None if end < 0 else _part_of(whole[at:end])
        if part is None:
            return None
        parts.append(part)
        at = end


def _part_of(data: bytes) -> Part | None:
    """A part from the end of its boundary's line on."""
    head, separator, content = data.partition(b"\r\n\r\n")
    if not data.startswith(b"\r\n") or not separator:
        return None
    fields: dict[bytes, bytes] = {}
    for line in head[2:].split(b"\r\n"):
        name, _, value = line.partition(b":")
        fields.setdefault(name.strip().lower(), value.strip())
    disposition = fields.get(b"content-disposition")
    if disposition is None:
        return None
    media = media_type(fields.get(b"content-type", b"").decode("latin-1"))
    return _parameter(disposition, b"name"), _parameter(disposition, b"filename"), media, content


class BodyReader:
    """Takes a body piece by piece and decodes it. The limit counts decoded bytes."""

    def __init__(self, encoding: str | None, length: str | None, limit: int) -> None:
        self._limit = limit
        self._body = bytearray()
        self._window = self._window_of((encoding or "identity").strip().lower())
        self._inflate = None if self._window is None else zlib.decompressobj(self._window)
        if self._inflate is None and length is not None and length.isdecimal() and int(length) > limit:
            raise too_large()

    @staticmethod
    def _window_of(encoding: str) -> int | None:
        try:
            return {"identity": None, "gzip": 31, "x-gzip": 31, "deflate": 15}[encoding]
        except KeyError:
            raise HttpProblem("content_encoding") from None

    def feed(self, data: bytes) -> None:
        if self._inflate is None:
            self._append(data)
            return
        try:
            while data:
                if self._inflate.eof:  # several members in a row are one body
                    self._inflate = zlib.decompressobj(self._window or 0)
                self._append(self._inflate.decompress(data, self._limit + 1))
                data = self._inflate.unconsumed_tail or self._inflate.unused_data
        except zlib.error:
            raise self._broken() from None

    def _append(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._limit:
            raise too_large()

    def body(self) -> bytes:
        """The end of the body."""
        if self._inflate is not None and not self._inflate.eof:
            raise self._broken()
        return bytes(self._body)

    @staticmethod
    def _broken() -> HttpProblem:
        return HttpProblem("bad_body", "The body is not what Content-Encoding says.")
