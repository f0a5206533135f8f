"""Bodies that are too large, on the way in and out, and who pays for reading them."""

import gzip
import json
import socket
import zlib

from .http_raw import Connection, head
from .support import Case
from .waiting import PATIENCE


class Requests(Case):
    def connection(self, *fields, path="/small", principal=True, key=True, content_type="application/json"):
        known = self.fields(key=key, content_type=content_type)
        connection = Connection(self.server.port, PATIENCE / 3)
        connection.send(head(path, [*(known if principal else known[1:]), *fields]))
        return connection

    def filled(self, size):
        order = {"effect": "done", "x": ""}
        order["x"] = "x" * (size - len(json.dumps(order)))
        return json.dumps(order).encode()

    def test_at_the_limit(self):
        self.assert_executed(self.send("/small", body=self.filled(1000)))

    def test_above_the_limit(self):
        self.assert_problem(self.send("/small", body=self.filled(1001)), status=413)
        self.assert_nothing()
        self.assert_executed(self.send("/small", {"effect": "done"}))

    def test_said_to_be_above_the_limit(self):
        """Told by Content-Length alone: the body is never sent."""
        with self.connection(("Content-Length", 1001)) as connection:
            self.assert_status(connection.answer(), 413)
        self.assert_nothing()

    def test_chunked(self):
        """At the limit, and not at the end, which never comes."""
        with self.connection(("Transfer-Encoding", "chunked")) as connection:
            connection.send(b"800\r\n" + bytes(0x800) + b"\r\n")
            self.assert_status(connection.answer(), 413)
        self.assert_nothing()

    def test_chunked_below_the_limit(self):
        body = self.filled(500)
        with self.connection(("Transfer-Encoding", "chunked"), ("Connection", "close")) as connection:
            connection.send(b"64\r\n" + body[:100] + b"\r\n190\r\n" + body[100:] + b"\r\n0\r\n\r\n")
            first = connection.answer()
        self.assert_executed(first)
        self.assert_replay_of(first, self.send("/small", body=body))

    def check_encoded(self, encoding, body, **named):
        fields = [("Content-Encoding", encoding), ("Content-Length", len(body)), ("Connection", "close")]
        with self.connection(*fields, **named) as connection:
            connection.send(body)
            return connection.answer()

    def test_gzip_that_holds_more(self):
        body = gzip.compress(self.filled(100_000))
        self.assertLess(len(body), 1000)
        self.assert_status(self.check_encoded("gzip", body), 413)
        self.assert_nothing()

    def test_gzip_is_the_same_request(self):
        body = self.filled(900)
        first = self.check_encoded("gzip", gzip.compress(body))
        if first.status == 415:
            self.assert_nothing()
            return  # it may refuse every encoding, but not misread one
        self.assert_executed(first)
        self.assert_effects(1)
        self.assert_replay_of(first, self.send("/small", body=body))

    def test_broken_gzip(self):
        for body in (b"no gzip at all", gzip.compress(self.filled(900))[:-10]):
            self.assertIn(self.check_encoded("gzip", body).status, (400, 415))
            self.assert_nothing()

    def test_unknown_encoding(self):
        self.assert_status(self.check_encoded("zip", zlib.compress(b"{}")), 415)
        self.assert_nothing()

    def test_two_encodings(self):
        """Undone both, or refused; not taken as they are."""
        answer = self.check_encoded("gzip, gzip", gzip.compress(gzip.compress(b"text")), content_type="text/plain")
        if answer.status != 200:
            self.assertIn(answer.status, (400, 415))
            self.assert_nothing()
        else:
            self.assertEqual(answer.body, b"text")

    def test_nobody_is_read_before_the_principal_is_known(self):
        """The body never comes; the answer does."""
        for fields in ([("Content-Length", 100_000)], [("Transfer-Encoding", "chunked")]):
            for path in ("/transactional", "/leased", "/pass", "/small"):
                with self.subTest((path, fields)):
                    with self.connection(*fields, path=path, principal=False) as connection:
                        self.assert_status(connection.answer(), 401)

    def test_nothing_is_read_without_a_key(self):
        for key in (None, "x" * 256):
            with self.connection(("Content-Length", 100_000), key=key) as connection:
                self.assert_status(connection.answer(), 400)

    def test_a_body_that_ends_too_early_claims_nothing(self):
        with self.connection(("Content-Length", 500)) as connection:
            connection.send(b'{"effect":"done"')
            connection.socket.shutdown(socket.SHUT_WR)
            try:
                self.assert_status(connection.answer(), 400)
            except ConnectionError:
                pass  # closed without a word, which is as good
        self.assert_executed(self.send("/small", {"effect": "other"}))
        self.assert_effects(0, "done")

    def test_two_lengths(self):
        """Of which a front and this server might believe different ones."""
        body = b'{"effect":"done"}'
        with self.connection(("Content-Length", len(body)), ("Content-Length", len(body) + 10), ("Connection", "close")) as connection:
            connection.send(body)
            try:
                self.assert_status(connection.answer(), 400)
            except ConnectionError:
                pass
        self.assert_nothing()

    def test_slow_clients_hold_up_nobody(self):
        """Sixteen that have sent half of a request, and one that wants to know how the server is."""
        slow = [self.connection(("Content-Length", 500)) for _ in range(16)]
        try:
            for connection in slow:
                connection.send(b'{"effect":')
            self.assert_status(self.health(), 200)
            self.assert_executed(self.send("/transactional", {"effect": "done"}))
        finally:
            for connection in slow:
                connection.socket.close()


class Answers(Case):
    def test_at_the_limit(self):
        order = {"effect": "done", "body": self.encoded(bytes(1000))}
        first = self.send("/omit", order)
        self.assert_executed(first)
        again = self.send("/omit", order)
        self.assert_replay_of(first, again)
        self.assertEqual(len(again.body), 1000)

    def test_too_large(self):
        """It can't be kept, so nothing has happened."""
        order = {"effect": "done", "body": self.encoded(bytes(91)), "repeat": 11}
        for _ in range(2):
            self.assert_status(self.send("/small", order), 500)
            self.assert_nothing()
        self.assert_executed(self.send("/small", {**order, "repeat": 10}))

    def test_too_large_by_default(self):
        """More than one MiB."""
        order = {"effect": "done", "body": self.encoded(bytes(1024)), "repeat": 1025}
        self.assert_status(self.send("/transactional", order), 500)
        self.assert_nothing()

    def test_too_large_on_a_leased_route(self):
        order = {"effect": "done", "body": self.encoded(bytes(1024)), "repeat": 1025}
        self.assert_status(self.send("/leased", order), 500)
        self.assertEqual(self.record()[0], "retryable")

    def test_too_large_and_streamed(self):
        order = {"effect": "done", "body": self.encoded(bytes(1024)), "repeat": 1025}
        self.assert_status(self.send("/streamed", order), 500)
        self.assert_nothing()

    def test_omitted(self):
        order = {"effect": "done", "status": 202, "headers": [["X-One", "1"]], "body": self.encoded(bytes(1001))}
        first = self.send("/omit", order)
        self.assert_executed(first, 202)
        self.assertEqual((first.body, first.all("X-One"), first.all("Idempotent-Body")), (bytes(1001), ["1"], []))
        again = self.send("/omit", order)
        self.assert_status(again, 202)
        self.assertEqual((again.body, again.all("Idempotent-Body"), again.all("Idempotent-Replayed")), (b"", ["omitted"], ["true"]))
        self.assert_effects(1)

    def test_above_what_the_policy_keeps(self):
        """The server refuses to store it: 500, and nothing has happened."""
        order = {"effect": "done", "body": self.encoded(bytes(150_000))}
        for _ in range(2):
            self.assert_status(self.send("/streamed", order), 500)
            self.assert_nothing()

    def test_above_what_the_policy_keeps_leased(self):
        order = {"effect": "done", "body": self.encoded(bytes(150_000))}
        self.assert_status(self.send("/leased", order), 500)
        self.assertEqual(self.record()[0], "retryable")
        self.assert_effects(1)
