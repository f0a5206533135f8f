"""The options of a route, and its hooks."""

import json
import time

from .support import Case
from .waiting import wait_until

CONFIGURED = {"header": "X-Request-Key"}


class Options(Case):
    def configured(self, order=None, **named):
        return self.send("/configured", order, **CONFIGURED, **named)

    def test_names_of_headers(self):
        first = self.configured({"effect": "done"})
        self.assert_executed(first, replay_header="X-Replay")
        self.prolong()
        again = self.configured({"effect": "done"})
        self.assert_replay_of(first, again, replay_header="X-Replay")
        self.assertEqual(again.all("Idempotent-Replayed"), [])

    def test_the_default_name_is_not_read_then(self):
        self.assert_problem(self.send("/configured", {"effect": "done"}), "missing_key")

    def test_echo(self):
        for answer in (self.configured({"effect": "done"}), self.configured({"effect": "done"}), self.configured({"x": 1})):
            self.assertEqual(answer.all("X-Request-Key"), [f'"{self.key}"'], answer)

    def test_no_echo_by_default(self):
        self.assertEqual(self.send("/transactional").all("Idempotency-Key"), [])

    def test_status_of_a_mismatch(self):
        self.assert_executed(self.configured({"effect": "done"}))
        self.prolong()
        self.assert_problem(self.configured({"effect": "other"}), "mismatch", 400)
        self.assert_effects(1)

    def test_excluded_fields(self):
        first = self.configured({"effect": "done", "ts": 1})
        self.prolong()
        self.assert_replay_of(first, self.configured({"effect": "done", "ts": 2}), replay_header="X-Replay")
        self.assert_problem(self.configured({"effect": "done", "ts": 2, "other": 1}), "mismatch", 400)

    def test_fields_that_the_policy_excludes(self):
        order = {"effect": "done", "ts": 1, "trace_id": "a", "meta": {"sent_at": 1, "by": "me"}}
        first = self.configured(order)
        self.prolong()
        repeat = {**order, "ts": 2, "trace_id": "b", "meta": {"sent_at": 2, "by": "me"}}
        self.assert_replay_of(first, self.configured(repeat), replay_header="X-Replay")
        self.assert_problem(self.configured({**order, "meta": {"by": "you"}}), "mismatch", 400)
        self.assert_effects(1)

    def test_an_operator_is_told_the_same(self):
        order = {"effect": "done", "ts": 1, "trace_id": "a"}
        self.configured(order)
        self.prolong()
        explain = """SELECT request ->> 'same', request ->> 'not_comparable'
                       FROM idem_explain(%s, %s::jsonb, 'POST /configured', %s, method => %s, path => %s)"""
        told = lambda body, *target: self.database.rows(  # noqa: E731
            explain, self.key, json.dumps(body), self.principal, *(target or (None, None)))
        self.assertEqual(told({**order, "ts": 2, "trace_id": "b"}, "POST", "/configured"), [("true", None)])
        self.assertEqual(told({**order, "other": 1}, "POST", "/configured"), [("false", None)])
        self.assertEqual(told({**order, "other": 1}), [(None, "method_and_path")])

    def test_everything_is_kept(self):
        for status in (500, 503, 429):
            with self.subTest(status):
                key = f"{self.key}-{status}"
                first = self.configured({"effect": "done", "status": status}, key=key)
                self.assert_executed(first, status, replay_header="X-Replay")
                self.prolong()
                again = self.configured({"effect": "done", "status": status}, key=key)
                self.assert_replay_of(first, again, replay_header="X-Replay")
        self.assert_effects(3)

    def test_what_is_thrown_is_not_kept_even_so(self):
        self.assert_status(self.configured({"effect": "done", "throw": True}), 500)
        self.assert_nothing()

    def test_replay_after_expiry(self):
        """The key is new again when the second of its ttl is over."""
        first = self.configured({"effect": "done"})
        self.prolong()
        self.assert_replay_of(first, self.configured({"effect": "done"}), replay_header="X-Replay")
        self.prolong(-1)
        wait_until("it has expired", lambda: self.database.value(
            "SELECT expires_at < clock_timestamp() FROM idempotency.records WHERE principal = %s", self.principal))  # fmt: skip
        self.assert_executed(self.configured({"effect": "done"}), replay_header="X-Replay")
        self.assert_effects(2)


class Hooks(Case):
    def told(self, name, key=None):
        return wait_until(f"the hook {name} is called", lambda: self.database.hooks(name, key or self.key))

    def test_execute_and_replay(self):
        for path in ("/transactional", "/leased"):
            key = self.key + path[1:]
            with self.subTest(path):
                self.send(path, key=key)
                self.assertEqual(self.told("execute", key), [(f"POST {path}", 1, "execute")])
                self.send(path, key=key)
                self.assertEqual(self.told("replay", key), [(f"POST {path}", 1, "replay")])
                self.assertEqual(self.database.hooks("refusal", key), [])

    def test_refusal(self):
        self.send("/transactional", {"effect": "done"})
        self.send("/transactional", {"effect": "other"})
        ((scope, _, outcome),) = self.told("refusal")
        self.assertEqual((scope, outcome), ("POST /transactional", "mismatch"))

    def test_refusal_without_a_key(self):
        before = self.without_key()
        self.send("/transactional", key=None)
        wait_until("the hook is called", lambda: self.without_key() > before)

    def without_key(self):
        return self.database.value("SELECT count(*) FROM hook WHERE name = 'refusal' AND outcome = 'missing_key'")

    def test_attempts(self):
        self.send("/leased", {"status": 503})
        self.database.run("SELECT idem_resolve(%s, 'release', scope => 'POST /leased', principal => %s, even_if_running => true)", self.key, self.principal)
        self.send("/leased", {"status": 503})
        wait_until("both are told", lambda: sorted(a for _, a, _ in self.database.hooks("execute", self.key)) == [1, 2])

    def waits(self, path):
        """Until more than databaseTimeout and the lease have passed, which are 2 s."""
        with self.database.gate() as gate:
            key = f"{self.key}-gate-{gate.number}"
            call = self.send_in_background(path, {"effect": "done"}, key=key)
            gate.wait_for()
            time.sleep(2.5)
            gate.open()
            self.assert_executed(call.result())
        self.assert_effects(1)

    def test_longer_than_the_database_may_take(self):
        """The time of a hook is not the database's: it may wait for another server, or for a log."""
        self.waits("/transactional")

    def test_longer_than_the_lease(self):
        """The lease is prolonged meanwhile."""
        self.waits("/leased")
