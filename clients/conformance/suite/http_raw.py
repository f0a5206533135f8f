"""HTTP as bytes: what a library would refuse to send or tidy up is sent as it is, and read as it is."""

import dataclasses
import json
import socket

from .waiting import PATIENCE

# Fields of one message, not of what is stored.
OF_ONE_MESSAGE = {"date", "connection", "keep-alive", "transfer-encoding", "content-length", "set-cookie"}


@dataclasses.dataclass(repr=False)
class Answer:
    status: int
    fields: list  # pairs, in their order
    body: bytes
    framing: str = ""  # how its end was told: length, chunks, status (204, 304), or close of the connection

    def __repr__(self):
        return f"{self.status} {self.fields} {self.body[:300]!r}"

    def all(self, name):
        return [value for known, value in self.fields if known.lower() == name.lower()]

    def one(self, name):
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def json(self):
        return json.loads(self.body)

    def essence(self, *except_names):
        """What a replay has to bring again: fields by name, those of one name in their order."""
        left = OF_ONE_MESSAGE | {name.lower() for name in except_names}
        fields = {}
        for name, value in self.fields:
            if name.lower() not in left:
                fields.setdefault(name.lower(), []).append(value)
        return self.status, fields, self.body


class Connection:
    """One TCP connection to the server under test."""

    def __init__(self, port, timeout=PATIENCE):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """A server that has heard enough may answer and close before everything is sent."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def _line(self):
        while b"\n" not in self.buffer:
            if not self._more():
                raise ConnectionError(f"the server closed the connection after {self.buffer[:200]!r}")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r")

    def _bytes(self, size):
        while len(self.buffer) < size:
            if not self._more():
                raise ConnectionError("the server closed the connection within a body")
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def _chunks(self):
        body = b""
        while size := int(self._line().split(b";")[0], 16):
            body += self._bytes(size)
            self._line()
        while self._line():
            pass
        return body

    def _rest(self):
        while self._more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def answer(self):
        status, fields = 100, []
        while status // 100 == 1:
            status = int(self._line().split(b" ", 2)[1])
            fields = []
            while line := self._line():
                name, value = line.split(b":", 1)
                fields.append((name.decode("latin-1"), value.strip(b" \t").decode("latin-1")))
        found = {name.lower(): value for name, value in fields}
        if status in (204, 304):
            body, framing = b"", "status"
        elif "chunked" in found.get("transfer-encoding", "").lower():
            body, framing = self._chunks(), "chunks"
        elif "content-length" in found:
            body, framing = self._bytes(int(found["content-length"])), "length"
        else:
            body, framing = self._rest(), "close"
        return Answer(status, fields, body, framing)

    def request(self, path, fields=(), body=b"", method="POST"):
        """One of several requests on this connection."""
        self.send(head(path, [*fields, ("Content-Length", len(body))], method) + body)
        return self.answer()


def head(path, fields, method="POST"):
    """The head of a request; a field is a pair, or bytes to be sent as they are."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: 127.0.0.1"]
    for field in fields:
        lines.append(field if isinstance(field, bytes) else f"{field[0]}: {field[1]}".encode("latin-1"))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def call(port, path, fields=(), body=b"", method="POST", timeout=PATIENCE):
    """One request on a connection of its own."""
    fields = [*fields, ("Connection", "close")]
    if body or method == "POST":
        fields.append(("Content-Length", len(body)))
    with Connection(port, timeout) as connection:
        connection.send(head(path, fields, method) + body)
        return connection.answer()
