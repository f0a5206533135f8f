"""What every case starts from, and what it may claim about an answer."""

import base64
import datetime
import json
import time
import unittest
import uuid

from .http_raw import call
from .waiting import in_background, unique


def needs(capability):
    """A case, or a group of cases, that a server is left out of whose `example/lacks` lists this word."""

    def mark(case):
        case.needs = capability
        return case

    return mark


class Wrong(AssertionError):
    """An effect too many, or another answer to a repeat: other cases at the same time do not excuse it."""


class Case(unittest.TestCase):
    """`server` is shared by cases that run at the same time; `lone` cases have one of their own. `last` cases change
    the database, which is shared by all: they run when the others have ended. Cases `for_the_first_server` concern the
    language, whatever server it has."""

    lone = False
    last = False
    for_the_first_server = False
    needs = None
    maxDiff = 2000
    suite = None  # of the run: database, shared, own

    def setUp(self):
        self.database = self.suite.database
        self.server = self.suite.own if self.lone else self.suite.shared
        if self.lone:
            self.server.ensure()
        self.principal, self.key = unique("tenant"), unique("key")

    # ---- sending ----

    def fields(self, key=True, principal=None, header="Idempotency-Key", content_type="application/json"):
        fields = [("Authorization", f"Bearer {principal or self.principal}")]
        if content_type:
            fields.append(("Content-Type", content_type))
        if key is not None:
            fields.append((header, f'"{self.key if key is True else key}"'))
        return fields

    def send(self, path, order=None, *, extra=(), server=None, body=None, **named):
        """An order to the handler, as a well-behaved client sends it."""
        content = json.dumps(order or {}).encode() if body is None else body
        return call((server or self.server).port, path, [*self.fields(**named), *extra], content)

    def send_in_background(self, *arguments, **named):
        return in_background(self.send, *arguments, **named)

    def prolong(self, hours=1, key=None):
        """What a route keeps for a second or two, so that the case may take its time; or back."""
        self.database.run(
            "UPDATE idempotency.record SET expires_at = expires_at + %s, retained_until = retained_until + %s"
            " WHERE principal = %s AND key = coalesce(%s::text, key)",
            *[datetime.timedelta(hours=hours)] * 2, self.principal, key)  # fmt: skip

    def health(self, server=None):
        return call((server or self.server).port, "/health", method="GET")

    @staticmethod
    def encoded(body):
        return base64.b64encode(body).decode()

    # ---- looking ----

    def effects(self, note=None, principal=None):
        return self.database.effects(principal or self.principal, note)

    def record(self, key=None, principal=None):
        return self.database.record(principal or self.principal, key)

    def assert_effects(self, count, note=None):
        found = self.effects(note)
        if found > count:
            raise Wrong(f"{found} effects instead of {count}")
        self.assertEqual(found, count, "effects")

    def assert_one_attempt(self):
        """A lease that ends while the machine stands still is no fault of the server, nor is the effect of the next attempt."""
        self.assertEqual(self.record()[:2], ("completed", 1))

    def assert_status(self, answer, status):
        self.assertEqual(answer.status, status, answer)

    def assert_executed(self, answer, status=201, replay_header="Idempotent-Replayed"):
        self.assert_status(answer, status)
        self.assertEqual(answer.all(replay_header), [], "a replay instead of an execution")

    def assert_replay_of(self, first, again, *other_fields, replay_header="Idempotent-Replayed"):
        self.assertNotIn(b"/problems/idempotency/", first.body, "no answer of the handler")
        self.assertEqual(again.all(replay_header), ["true"], again)
        if again.essence(replay_header, *other_fields) != first.essence(*other_fields):
            raise Wrong(f"{again} instead of {first}")

    def assert_unavailable(self, answer, status=503):
        self.assert_problem(answer, status=status)
        self.assertEqual(answer.one("Retry-After"), "1")

    def assert_problem(self, answer, word=None, status=None):
        """A problem document that says what its status line says, and what the server says of the word."""
        expected = None
        if word:
            expected = self.database.value("SELECT idem_problem(%s::text)", word)
            status = status or expected["status"]
        self.assertEqual(answer.status, status, answer)
        self.assertTrue((answer.one("Content-Type") or "").startswith("application/problem+json"), answer)
        document = answer.json()
        self.assertEqual(document.get("status"), status, document)
        self.assertTrue(document.get("title"), document)
        if expected:
            self.assertEqual(document.get("type"), expected["type"])
            self.assertEqual(document.get("title"), expected["title"])
        if word == "in_progress":
            self.assertGreaterEqual(int(answer.one("Retry-After") or 0), 1, answer)

    def assert_made_now(self, key):
        """A UUID of version 7, which begins with the milliseconds of its making."""
        made = uuid.UUID(key)
        self.assertEqual((str(made), made.version, made.variant), (key, 7, uuid.RFC_4122))
        self.assertLess(abs((made.int >> 80) / 1000 - time.time()), 60)

    def assert_nothing(self):
        self.assertEqual((self.effects(), self.record()), (0, None))
