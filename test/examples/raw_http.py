"""HTTP as no library would send it: bytes on a socket, and what comes back."""

import dataclasses
import http.client
import io
import json
import select
import socket

from http_call import Answer
from waiting import PATIENCE


class Received(io.BytesIO):
    """What http.client wants to read an answer from."""

    def makefile(self, _mode):
        return self


def parsed(data):
    response = http.client.HTTPResponse(Received(data))
    response.begin()
    return Answer(response.status, response.headers, response.read(), 0)


def head(method, path, *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", *fields, "", ""]).encode("latin-1")


def post(path, tenant, body, *fields):
    """A whole request as it should be, but for `fields`."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        head(
            "POST",
            path,
            f"Authorization: Bearer sk_{tenant}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
            *fields,
        )
        + content
    )


@dataclasses.dataclass
class Line:
    """A connection, which is closed with the test."""

    port: int

    def __post_init__(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def send(self, data):
        self.socket.sendall(data)

    def answers_already(self, patience=0):
        return bool(select.select([self.socket], [], [], patience)[0])

    def rest(self):
        """Everything until the other end closes."""
        data = b""
        while part := self.socket.recv(1 << 16):
            data += part
        return data

    def close(self):
        self.socket.close()


def exchange(port, data):
    line = Line(port)
    try:
        line.send(data)
        return parsed(line.rest())
    finally:
        line.close()
