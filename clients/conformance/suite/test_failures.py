"""Handlers that fail, answers that are not kept, and what meets a request that is still running."""

import json

from .http_raw import Connection, head
from .support import Case
from .waiting import in_background, unique, wait_until


class Failures(Case):
    def test_thrown(self):
        answer = self.send("/transactional", {"effect": "done", "throw": True})
        self.assert_status(answer, 500)
        self.assert_nothing()
        self.assert_executed(self.send("/transactional", {"effect": "other"}))
        self.assert_effects(1, "other")

    def check_hidden(self, path, **named):
        answer = self.send(path, {"effect": "done", "hide_error": True}, **named)
        self.assert_status(answer, 500)
        self.assert_nothing()

    def test_hidden_error(self):
        """COMMIT of a transaction in which a statement has failed rolls it back without a word."""
        self.check_hidden("/transactional")
        self.assert_executed(self.send("/transactional", {"effect": "other"}))
        self.assert_effects(1, "other")

    def test_hidden_error_without_a_claim(self):
        """Where no statement of the client's own comes after it, either."""
        self.check_hidden("/pass", key=None)
        self.assert_executed(self.send("/pass", {"effect": "other"}, key=None))
        self.assert_effects(1, "other")

    def check_committed(self, way):
        self.assert_status(self.send("/transactional", {"effect": "done", "commit": way}), 500)
        self.assert_nothing()
        self.assert_executed(self.send("/transactional", {"effect": "other"}))
        self.assert_effects(1, "other")

    def test_handler_commits(self):
        """The effects would stay without their answer, and be done again."""
        self.check_committed("sql")

    def test_handler_commits_by_its_driver(self):
        self.check_committed("driver")

    def test_thrown_on_a_leased_route(self):
        order = {"effect": "done", "throw": True}
        self.assert_status(self.send("/leased", order), 500)
        self.assert_effects(1)
        self.assertEqual(self.record()[:3], ("retryable", 1, "effect"))
        later = self.send("/leased", order)
        self.assert_problem(later, "retry_later")
        self.assertGreaterEqual(int(later.one("Retry-After")), 1)
        self.assert_effects(1)

    def test_recovery_point(self):
        """The attempt after does not do again what was done."""
        order = {"effect": "done", "status": 503}
        self.assert_status(self.send("/leased", order), 503)
        self.database.run("SELECT idem_resolve(%s, 'release', scope => 'POST /leased', principal => %s, even_if_running => true)", self.key, self.principal)
        self.assert_status(self.send("/leased", order), 503)
        self.assertEqual(self.record()[:3], ("retryable", 2, "effect"))
        self.assert_effects(1)

    def check_not_kept(self, status):
        order = {"effect": "done", "status": status, "headers": [["X-Why", "because"]], "body": self.encoded(b"why")}
        key = f"{self.key}-{status}"
        answer = self.send("/transactional", order, key=key)
        self.assert_executed(answer, status)
        self.assertEqual((answer.body, answer.all("X-Why")), (b"why", ["because"]))
        self.assertIsNone(self.record(key))
        self.assert_effects(0)
        self.assert_executed(self.send("/transactional", order, key=key), status)
        self.assert_effects(0)

    def test_5xx_is_not_kept(self):
        for status in (500, 502, 503, 599):
            with self.subTest(status):
                self.check_not_kept(status)

    def test_408_425_and_429_are_not_kept(self):
        for status in (408, 425, 429):
            with self.subTest(status):
                self.check_not_kept(status)

    def test_after_5xx_the_key_is_free(self):
        self.assert_status(self.send("/transactional", {"effect": "done", "status": 500}), 500)
        self.assert_executed(self.send("/transactional", {"effect": "other"}))

    def test_4xx_is_kept(self):
        for status in (400, 402, 404, 409, 422):
            with self.subTest(status):
                key = f"{self.key}-{status}"
                order = {"status": status, "body": self.encoded(b"no")}
                first = self.send("/transactional", order, key=key)
                self.assert_executed(first, status)
                self.assert_replay_of(first, self.send("/transactional", order, key=key))

    def test_leased_5xx_is_retry_later(self):
        for status in (500, 503, 429):
            with self.subTest(status):
                key = f"{self.key}-{status}"
                order = {"status": status, "body": self.encoded(b"why")}
                answer = self.send("/leased", order, key=key)
                self.assert_executed(answer, status)
                self.assertEqual(answer.body, b"why")
                self.assertEqual(self.record(key)[0], "retryable")
                self.assert_problem(self.send("/leased", order, key=key), "retry_later")

    def test_leased_4xx_is_kept(self):
        order = {"effect": "done", "status": 422}
        first = self.send("/leased", order)
        self.assert_replay_of(first, self.send("/leased", order))
        self.assert_effects(1)

    def test_serialization_failures(self):
        """Four, and the fifth run succeeds."""
        order = {"effect": "done", "serialization_failures": 4}
        first = self.send("/transactional", order)
        self.assert_executed(first)
        self.assert_effects(1)
        self.assert_replay_of(first, self.send("/transactional", order))

    def test_serialization_failures_without_end(self):
        """Five runs, and not a sixth."""
        order = {"effect": "done", "serialization_failures": 5}
        self.assert_problem(self.send("/transactional", order), status=503)
        self.assert_nothing()
        self.assert_executed(self.send("/transactional", order))
        self.assert_effects(1)


class Uncertain(Case):
    """A leased route whose scope has on_lease_expiry => 'unknown', and claims that say themselves how they ended."""

    def check_unknown(self, order, status, path="/uncertain"):
        answer = self.send(path, order)
        self.assert_executed(answer, status)
        again = self.send(path, order)
        self.assert_problem(again, "unknown")
        self.assertEqual((again.one("Retry-After"), again.json()["retry_after"]), ("60", 60))
        self.assertEqual(self.record()[:2], ("unknown", 1))
        self.assert_effects(1)
        return answer

    def test_thrown(self):
        self.check_unknown({"effect": "done", "throw": True}, 500)

    def test_not_kept(self):
        for status in (503, 429):
            with self.subTest(status):
                self.principal = unique("tenant")
                order = {"effect": "done", "status": status, "body": self.encoded(b"why")}
                self.assertEqual(self.check_unknown(order, status).body, b"why")

    def test_too_large(self):
        self.check_unknown({"effect": "done", "body": self.encoded(bytes(1024)), "repeat": 1025}, 500)

    def test_4xx_is_kept(self):
        order = {"effect": "done", "status": 422}
        first = self.send("/uncertain", order)
        self.assert_replay_of(first, self.send("/uncertain", order))

    def check_nothing_happened(self, path):
        order = {"nothing_happened": True}
        self.assert_status(self.send(path, order), 500)
        self.assertEqual(self.database.told(self.principal), ("retryable", "nothing happened", None))
        self.assert_problem(self.send(path, order), "retry_later")
        scope = f"POST {path}"
        self.database.run("SELECT idem_resolve(%s, 'release', scope => %s, principal => %s, even_if_running => true)", self.key, scope, self.principal)
        self.assert_status(self.send(path, order), 500)
        self.assertEqual(self.record()[:2], ("retryable", 2))

    def test_nothing_happened(self):
        self.check_nothing_happened("/uncertain")

    def test_nothing_happened_in_another_scope(self):
        self.check_nothing_happened("/leased")

    def test_nothing_happened_in_a_transaction(self):
        self.assert_status(self.send("/transactional", {"effect": "done", "nothing_happened": True}), 500)
        self.assert_nothing()

    def test_the_claim_says_unknown(self):
        """Whatever the policy says. The answer is sent and not stored."""
        for path in ("/leased", "/uncertain"):
            with self.subTest(path):
                self.principal = unique("tenant")
                order = {"effect": "done", "unknown": ["timeout", "ch_4711"], "status": 202, "body": self.encoded(b"wait")}
                self.assertEqual(self.check_unknown(order, 202, path).body, b"wait")
                self.assertEqual(self.database.told(self.principal), ("unknown", "timeout", "ch_4711"))

    def test_the_claim_says_unknown_and_fails(self):
        for end in ("throw", "nothing_happened"):
            with self.subTest(end):
                self.principal = unique("tenant")
                self.check_unknown({"effect": "done", "unknown": ["timeout", None], end: True}, 500, "/leased")
                self.assertEqual(self.database.told(self.principal), ("unknown", "timeout", None))

    def test_the_answer_to_unknown_is_cut(self):
        trap = self.server.proxy.trap("idem_unknown", "answer", "cut", self.key)
        self.check_unknown({"effect": "done", "unknown": ["timeout", "ch_4711"]}, 201)
        self.assertTrue(trap.reached.is_set(), "the trap")

    def test_an_operator_decides(self):
        order = {"effect": "done", "unknown": ["timeout", "ch_4711"]}
        self.check_unknown(order, 201)
        self.database.run(
            "SELECT idem_resolve(%s, 'complete', scope => 'POST /uncertain', principal => %s, status_code => 200, body => 'paid')",
            self.key, self.principal)  # fmt: skip
        answer = self.send("/uncertain", order)
        self.assertEqual((answer.status, answer.body, answer.all("Idempotent-Replayed")), (200, b"paid", ["true"]))


class Running(Case):
    def check_running(self, path, word="in_progress", status=None, header="Idempotency-Key"):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            first = self.send_in_background(path, order, header=header)
            gate.wait_for()
            answer = self.send(path, order, header=header)
            self.assert_problem(answer, word, status)
            gate.open()
            return order, first.result(), answer

    def test_transactional(self):
        order, first, _ = self.check_running("/transactional")
        self.assert_executed(first)
        self.assert_replay_of(first, self.send("/transactional", order))
        self.assert_effects(1)

    def test_leased(self):
        order, first, answer = self.check_running("/leased")
        self.assert_executed(first)
        self.assertIn(int(answer.one("Retry-After")), (1, 2))
        self.assert_replay_of(first, self.send("/leased", order))
        self.assert_effects(1)

    def test_other_payload_while_leased(self):
        with self.database.gate() as gate:
            first = self.send_in_background("/leased", {"gate": gate.number})
            gate.wait_for()
            self.assert_problem(self.send("/leased", {"effect": "other"}), "mismatch")
            gate.open()
            self.assert_executed(first.result())

    def check_left(self, path):
        """The client goes away before the answer; whether the work goes on or not, it is done once."""
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            body = json.dumps(order).encode()
            with Connection(self.server.port) as connection:
                connection.send(head(path, [*self.fields(), ("Content-Length", len(body))]) + body)
                gate.wait_for()
            gate.open()

        def settled():
            answer = self.send(path, order)
            return answer if answer.status != 409 else None

        self.assert_status(wait_until("it is settled", settled), 201)
        self.assert_one_attempt()
        self.assert_effects(1)

    def test_client_leaves(self):
        self.check_left("/transactional")

    def test_client_leaves_a_leased_route(self):
        self.check_left("/leased")

    def test_with_another_status(self):
        self.check_running("/configured", status=425, header="X-Request-Key")


class Crowd(Case):
    lone = True

    def check_crowd(self, path):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            calls = [in_background(self.send, path, order) for _ in range(100)]

            def settled():
                done = sum(call.done() for call in calls)
                return done == 99 or gate.waiting() > 1

            wait_until("99 are answered", settled, pause=0.1)
            self.assertEqual(gate.waiting(), 1, "at work")
            gate.open()
            answers = [call.result() for call in calls]
        self.assertEqual(sorted(answer.status for answer in answers), [201] + [409] * 99)
        self.assert_one_attempt()
        self.assert_effects(1)

    def test_transactional(self):
        self.check_crowd("/transactional")

    def test_leased(self):
        self.check_crowd("/leased")

    def test_derived(self):
        with self.database.gate() as gate:
            order = {"gate": gate.number, "effect": "done"}
            calls = [in_background(self.send, "/derive", order, key=None) for _ in range(20)]
            wait_until("19 are answered", lambda: sum(c.done() for c in calls) == 19 or gate.waiting() > 1)
            gate.open()
            self.assertEqual(sorted(call.result().status for call in calls), [201] + [409] * 19)
            self.assertEqual(len({call.result().one("Idempotency-Key") for call in calls}), 1)
        self.assert_effects(1)
