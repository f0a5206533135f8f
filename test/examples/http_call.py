"""One HTTP request, its answer, and the bodies that most tests send."""

import dataclasses
import http.client
import json
import time

from waiting import PATIENCE

# Header fields that belong to one answer and are not stored. Idempotency-Key tells clients that
# sent no key which one they were given.
OF_ONE_ANSWER = (
    "idempotent-replayed",
    "idempotency-key",
    "set-cookie",
    "date",
    "connection",
    "keep-alive",
)


@dataclasses.dataclass(repr=False)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    seconds: float

    def __repr__(self):
        return f"{self.status} {self.headers.items()} {self.body[:300]!r}"

    def json(self):
        return json.loads(self.body)

    @property
    def replayed(self):
        return self.headers["Idempotent-Replayed"] == "true"

    @property
    def essence(self):
        """What a repeat must get again."""
        fields = sorted(
            (name.lower(), value)
            for name, value in self.headers.items()
            if name.lower() not in OF_ONE_ANSWER
        )
        return self.status, fields, self.body


def call(port, method, path, headers=(), body=b"", timeout=PATIENCE):
    """One request on a connection of its own; headers are pairs, so that one can be sent twice."""
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if body or method in ("POST", "PATCH", "PUT"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        content = response.read()
        return Answer(response.status, response.headers, content, time.monotonic() - started)
    finally:
        connection.close()


def payment(card="tok_visa", value="12.50", **other):
    return {
        "amount": {"value": value, "currency": "EUR"},
        "customer": "CUS_TEST",
        "card": card,
        **other,
    }
