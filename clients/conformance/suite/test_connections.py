"""Several requests over one connection: each answer says where it ends, and the connection stays."""

import json

from .http_raw import Connection, head
from .support import Case, needs


@needs("keep_alive")
class Connections(Case):
    def two(self, path, first, second):
        """Two orders over one connection, each with a key of its own."""
        answers = []
        with Connection(self.server.port) as connection:
            for number, order in enumerate((first, second)):
                body = json.dumps(order).encode()
                answers.append(connection.request(path, self.fields(key=f"{self.key}-{number}"), body))
        return answers

    def assert_framed(self, answer):
        self.assertIn(answer.framing, ("length", "chunks", "status"), answer)
        self.assertNotIn("close", (answer.one("Connection") or "").lower(), answer)
        self.assertFalse(answer.all("Content-Length") and answer.all("Transfer-Encoding"), answer)

    def test_two_requests(self):
        for path in ("/transactional", "/leased", "/streamed", "/omit"):
            with self.subTest(path):
                order = {"body": self.encoded(b"content" * 100)}
                self.key = f"{self.key}{path[1:]}"
                for answer in self.two(path, order, order):
                    self.assert_executed(answer)
                    self.assertEqual(answer.body, b"content" * 100)
                    self.assert_framed(answer)

    def test_answers_without_a_body(self):
        for status in (200, 204, 422):
            with self.subTest(status):
                self.key = f"{self.key}{status}"
                for answer in self.two("/transactional", {"status": status}, {"status": status}):
                    self.assert_executed(answer, status)
                    self.assertEqual(answer.body, b"")
                    self.assert_framed(answer)

    def test_execution_replay_refusal(self):
        order, other = (json.dumps(one).encode() for one in ({"body": self.encoded(b"first")}, {"effect": "other"}))
        with Connection(self.server.port) as connection:
            first = connection.request("/transactional", self.fields(), order)
            self.assert_framed(first)
            again = connection.request("/transactional", self.fields(), order)
            self.assert_framed(again)
            self.assert_replay_of(first, again)
            refused = connection.request("/transactional", self.fields(), other)
            self.assert_framed(refused)
            self.assert_problem(refused, "mismatch")

    def test_two_at_once(self):
        """The second is sent before the first is answered."""
        body = json.dumps({"effect": "done", "body": self.encoded(b"content")}).encode()
        requests = [
            head("/transactional", [*self.fields(key=f"{self.key}-{number}"), ("Content-Length", len(body))]) + body
            for number in range(2)
        ]
        with Connection(self.server.port) as connection:
            connection.send(b"".join(requests))
            for _ in requests:
                answer = connection.answer()
                self.assert_executed(answer)
                self.assert_framed(answer)
        self.assert_effects(2)

    def test_the_handlers_trailer(self):
        """A field of one hop is neither sent nor stored."""
        order = {"headers": [["Trailer", "X-Sum"], ["X-One", "1"]], "body": self.encoded(b"content")}
        first = self.send("/transactional", order)
        self.assert_executed(first)
        again = self.send("/transactional", order)
        self.assert_replay_of(first, again, "Trailer")
        self.assertEqual((again.all("X-One"), again.all("Trailer")), (["1"], []))
        self.assert_status(self.health(), 200)
