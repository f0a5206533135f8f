"""What every test of the payments example starts from, and what it may claim about an answer."""

import unittest

from database import Database
from processes import PATIENCE_MS, Gateway, Pod
from waiting import unique


class PaymentsTest(unittest.TestCase):
    """Two pods over one database, and the gateway. The cards for tests work in the first."""

    lease = PATIENCE_MS

    @classmethod
    def setUpClass(cls):
        cls.database = Database()
        cls.addClassCleanup(cls.database.drop)
        cls.gateway = Gateway()
        cls.addClassCleanup(cls.gateway.close)
        cls.pods = []
        for arguments in (["--test-cards"], []):
            cls.pods.append(Pod(cls.database.conninfo, cls.gateway, *arguments, lease=cls.lease))
            cls.addClassCleanup(cls.pods[-1].close)

    def setUp(self):
        self.pod, self.other = self.pods
        for process in (self.gateway, *self.pods):
            if not process.runs():
                process.start()
        self.gateway.reset()
        self.tenant, self.key = unique("tenant"), unique("key")

    def assert_executed(self, answer, status=201):
        self.assertEqual(answer.status, status, answer)
        self.assertFalse(answer.replayed, "a replay instead of an execution")

    def assert_replay_of(self, first, repeat):
        self.assertEqual(repeat.essence, first.essence)
        self.assertTrue(repeat.replayed, repeat.headers)
        self.assertFalse(first.replayed, first.headers)

    def assert_problem(self, answer, status, kind=None):
        """A problem document (RFC 9457) that says what its status line says."""
        self.assertEqual(answer.status, status, answer)
        self.assertEqual(answer.headers.get_content_type(), "application/problem+json")
        document = answer.json()
        self.assertEqual(document["status"], status)
        self.assertTrue(document["title"])
        if kind:
            self.assertEqual(document["type"].rsplit("/", 1)[-1], kind)

    def assert_in_progress(self, answer):
        self.assert_problem(answer, 409, "in-progress")
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)

    def assert_nothing_stored(self):
        self.assertEqual(
            (self.database.records(self.tenant), self.database.charges(self.tenant)), (0, 0)
        )
